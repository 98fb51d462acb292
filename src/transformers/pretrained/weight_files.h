// The tensors of a checkpoint by what their files say of them, before one of them is read.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace accelerate::transformers {

struct StoredWeight {
  std::string name{};
  std::vector<int64_t> shape{};
  at::ScalarType dtype = at::kFloat;
  // Another name of a tensor that the file holds once.
  bool is_alias = false;
};

struct WeightFiles {
  // What load_checkpoint_in_model() is to be given: the file, the index or the folder.
  std::filesystem::path checkpoint{};
  bool follow_links = false;
  std::vector<StoredWeight> tensors{};

  // Of all tensors, aliases not counted.
  int64_t elements() const;
  // Of the first tensor of floating point; 8-bit ones do not count.
  std::optional<at::ScalarType> dtype() const;
};

// In the order of transformers: model.safetensors, its index, pytorch_model.bin, its index; then
// what a sharded run of Python has left in the folder, as files::MergeSource reads it. Reads
// headers of safetensors files alone; archives one at a time. Throws CheckpointError if there is
// none, or one that is damaged.
WeightFiles find_weight_files(const std::filesystem::path& folder, bool follow_links = false);

}  // namespace accelerate::transformers
