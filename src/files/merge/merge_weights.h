// A model that is spread over several files, made one file, or spread otherwise.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "files/safetensors/shard_index.h"

namespace accelerate::files {

struct MergeOptions {
  // Unset: one file, however large.
  std::optional<uint64_t> max_shard_bytes{};
  // Replace a model that is in the target.
  bool overwrite = false;
  // Remove the files of the source once the new ones are durable. Not those of a state directory,
  // nor those of DeepSpeed.
  bool remove_source = false;
  Links links = Links::kInside;
  // As in MergeSourceOptions.
  std::string deepspeed_tag{};
  bool exclude_frozen_parameters = false;
};

struct MergeReport {
  std::filesystem::path path{};  // of the one file, or of the index
  uint64_t tensors = 0;
  uint64_t bytes = 0;  // of tensors
  uint64_t files = 0;  // with tensors
  // Keys of the metadata to which the files gave different values: they are left out.
  std::vector<std::string> differing_metadata{};
  std::vector<std::string> left_out{};  // names of what is not a tensor
  std::string too_large{};  // the largest tensor beyond max_shard_bytes; "": there is none
  uint64_t too_large_bytes = 0;
  size_t too_large_tensors = 0;  // beyond max_shard_bytes, this one and others
};

// Reads a model as MergeSource does and writes it to `target`: a file if that ends in .safetensors,
// else a folder, which is made if need be. Tensors are the same byte for byte (buffers of DeepSpeed
// become float32), aliases and other metadata are kept. A few megabytes are in memory at a time.
// Durable when it returns, and there completely or not at all, as with save_model().
//
// Throws UsageError if the target is the source or in its folder (beside a source that is a single
// file it may be, under another name or in a folder of its own), holds a model and `overwrite` is
// not set, is a state directory, or is a file while max_shard_bytes is set; CheckpointError as
// MergeSource, and if writing fails: then the source is as it was, and so is the target.
MergeReport merge_safetensors(const std::filesystem::path& source,
                              const std::filesystem::path& target,
                              const MergeOptions& options = {});

}  // namespace accelerate::files
