// One process: the model as it is.
#pragma once

#include "accelerate/strategy.h"

namespace accelerate {

class SingleStrategy final : public Strategy {
 public:
  std::string_view name() const override { return "single"; }
  std::shared_ptr<ModelStrategy> wrap(std::shared_ptr<torch::nn::Module>) override {
    return std::make_shared<ModelStrategy>();
  }
};

}  // namespace accelerate
