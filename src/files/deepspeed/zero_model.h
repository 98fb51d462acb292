// The float32 weights of a DeepSpeed checkpoint, put together from the parts of the ranks.
#pragma once

#include <filesystem>
#include <string>

#include "files/pieces/pieced_model.h"
#include "files/safetensors/shard_index.h"

namespace accelerate::files {

struct ZeroModelOptions {
  std::string tag{};  // empty: the latest
  bool exclude_frozen_parameters = false;
  Links links = Links::kInside;
};

// What zero_to_fp32.py of DeepSpeed would write: of parameters that are trained the masters of the
// optimizer, of the others what the model has, buffers as float32; names of shared parameters are
// aliases. A buffer of numbers that float32 does not have (a count beyond 2^24) keeps its type.
//
// Costs one reading of the weights. Throws CheckpointError as find_zero_files(), for damaged files,
// and if parts of ranks do not make the parameters.
PiecedModel read_deepspeed_folder(const std::filesystem::path& folder,
                                  const ZeroModelOptions& options = {});

}  // namespace accelerate::files
