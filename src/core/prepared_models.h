// The models that an accelerator has prepared.
#pragma once

#include <memory>
#include <vector>

#include "accelerate/strategy.h"

namespace accelerate {

// A module keeps its strategy however often it is prepared.
struct PreparedModule {
  std::shared_ptr<torch::nn::Module> module;
  std::shared_ptr<ModelStrategy> strategy;
};

// In the order of their preparation.
using PreparedModels = std::vector<PreparedModule>;

}  // namespace accelerate
