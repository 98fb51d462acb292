// Where a model is, and what can be known of it without reading its numbers.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "estimate/architectures.h"
#include "estimate/parameter_list.h"

namespace accelerate::estimate {

struct ModelSource {
  std::string origin{};  // the file that was read, for people
  std::vector<Parameter> parameters{};
  // The config.json that was read, or that lies beside the weights.
  std::optional<std::filesystem::path> config{};
  std::string architecture{};  // the class that it names; "" where none does
};

// Finds the model that `name` means: a .safetensors file, an index of several, a config.json, or a
// folder with one of them; else what the cache of the Hugging Face hub has under that name
// ("bert-base-cased"). Of weights the headers are read, nothing else.
//
// Throws CheckpointError or ConfigError for files that cannot be used, and UsageError if there is
// nothing.
ModelSource find_model(const std::string& name);

}  // namespace accelerate::estimate
