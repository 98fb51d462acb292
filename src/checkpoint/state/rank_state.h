// What one rank has for itself in a checkpoint.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "accelerate/state_dict.h"
#include "accelerate/torch_archive.h"

namespace accelerate::checkpoint {

// rank_state_<rank>.bin. A value type, but for the tensors.
struct RankState {
  using Tensors = std::map<std::string, at::Tensor>;

  // The losses of the open window so far.
  int64_t losses = 0;
  bool weighted = false;
  bool weighted_in_micro_batch = false;
  double sum_of_weights = 0;

  std::vector<Tensors> gradients{};  // by model
  std::vector<Tensors> buffers{};
  std::vector<StateDict> hooks{};  // what communication hooks keep; empty ones keep nothing
  bool trigger = false;

  bool has_hooks() const;

  TorchValue to_archive() const;
  // Throws CheckpointError if it is no such state.
  static RankState from_archive(const TorchValue& value);
};

std::string rank_file(int rank);

// For a run of another size: gradients and weights are the mean over all old ranks, and a rank
// without a gradient counts as zero. Buffers and hooks are of no use there and left out.
RankState mean_of(const std::vector<RankState>& ranks);

}  // namespace accelerate::checkpoint
