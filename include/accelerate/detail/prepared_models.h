// The models that an accelerator has prepared, for the objects that need to know them.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "accelerate/strategy.h"

namespace accelerate::detail {

// Shared by an accelerator and its optimizers. One thread at a time.
struct PreparedModels {
  struct Entry {
    std::shared_ptr<torch::nn::Module> module;
    std::shared_ptr<ModelStrategy> strategy;
    int64_t number;  // of all that were ever prepared: the same on all ranks, used once
  };
  std::vector<Entry> entries;
  int64_t prepared = 0;  // so far
  int rank = 0;          // of the accelerator; for messages
  int world_size = 1;

  // Tells the strategies that the gradients of `parameters` are dropped.
  void drop_gradients(const std::vector<at::Tensor>& parameters) const {
    for (const Entry& model : entries) model.strategy->drop_gradients(parameters);
  }
};

}  // namespace accelerate::detail
