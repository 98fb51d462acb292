// What save_model() does, for tensors that need not be there before they are written.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "accelerate/model_files.h"
#include "checkpoint/model/safetensors_stream.h"

namespace accelerate::checkpoint {

// Writes a model of these tensors. With `value_of` they only describe it: names, types and shapes,
// and which are one tensor; each value is asked for when its turn comes, in the order of
// saving_order(), and kept no longer than it takes to write it, or the file that it is in if that
// is an archive.
void save_tensors(const ModelStateDict& state, const std::filesystem::path& folder,
                  const SaveModelOptions& options, const TensorValue& value_of = {});
std::vector<std::string> saving_order(const ModelStateDict& state, const SaveModelOptions& options);

}  // namespace accelerate::checkpoint
