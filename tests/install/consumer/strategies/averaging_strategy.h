// A strategy of a user: every rank steps by its own gradients, and the parameters are averaged
// after each step. Needs the public headers of Accelerate alone.
#pragma once

#include <accelerate/communicator.h>
#include <accelerate/strategy.h>
#include <torch/nn/module.h>

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

namespace strategies {

class AveragingOptimizer final : public accelerate::OptimizerStrategy {
 public:
  AveragingOptimizer(torch::optim::Optimizer& optimizer,
                     std::shared_ptr<accelerate::Communicator> ranks)
      : OptimizerStrategy(optimizer), ranks_(std::move(ranks)) {}

  void after_step() override {
    const at::NoGradGuard no_grad;
    for (at::Tensor& parameter : parameters()) {
      ranks_->all_reduce(parameter, accelerate::ReduceOp::kMean);
    }
  }

 private:
  std::shared_ptr<accelerate::Communicator> ranks_;
};

class AveragingStrategy final : public accelerate::Strategy {
 public:
  explicit AveragingStrategy(std::shared_ptr<accelerate::Communicator> ranks)
      : ranks_(std::move(ranks)) {}

  std::string_view name() const override { return "averaging"; }

  // All ranks begin with the values of rank 0.
  std::shared_ptr<accelerate::ModelStrategy> wrap(
      std::shared_ptr<torch::nn::Module> module) override {
    const at::NoGradGuard no_grad;
    for (at::Tensor& parameter : module->parameters()) ranks_->broadcast(parameter);
    for (at::Tensor& buffer : module->buffers()) ranks_->broadcast(buffer);
    return std::make_shared<accelerate::ModelStrategy>();
  }

  std::unique_ptr<accelerate::OptimizerStrategy> prepare_optimizer(
      const accelerate::OptimizerPreparation& preparation) override {
    return std::make_unique<AveragingOptimizer>(preparation.optimizer, ranks_);
  }

 private:
  std::shared_ptr<accelerate::Communicator> ranks_;
};

class Averaging final : public accelerate::StrategyFactory {
 public:
  std::unique_ptr<accelerate::Strategy> make(
      const accelerate::StrategyContext& context) const override {
    return std::make_unique<AveragingStrategy>(context.ranks);
  }
};

}  // namespace strategies
