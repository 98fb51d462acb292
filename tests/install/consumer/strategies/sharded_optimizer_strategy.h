// A strategy of a user: gradients are averaged over the ranks, and every rank keeps and updates its
// share of the optimizer's state alone, as ZeRO's first stage does. Needs the public headers of
// Accelerate alone.
#pragma once

#include <ATen/ATen.h>
#include <accelerate/clip.h>
#include <accelerate/communicator.h>
#include <accelerate/strategy.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace strategies {

// The parameters of one group as one vector, of which this rank trains `begin` to `end`.
struct Share {
  std::vector<at::Tensor> parameters;
  int64_t begin = 0;
  int64_t end = 0;
  at::Tensor trained{};

  // Of what the parameters have, their values or gradients.
  template <class Part>
  at::Tensor own_part(Part part) const {
    std::vector<at::Tensor> rows;
    for (const at::Tensor& parameter : parameters) rows.push_back(part(parameter).reshape({-1}));
    return at::cat(rows).narrow(0, begin, end - begin);
  }
  at::Tensor own_values() const {
    return own_part([](const at::Tensor& parameter) { return parameter.detach(); });
  }
};

class ShardedOptimizer final : public accelerate::OptimizerStrategy {
 public:
  ShardedOptimizer(torch::optim::Optimizer& optimizer,
                   std::shared_ptr<accelerate::Communicator> ranks)
      : OptimizerStrategy(optimizer), ranks_(std::move(ranks)) {
    for (auto& group : optimizer.param_groups()) {
      Share share{.parameters = group.params()};
      int64_t elements = 0;
      for (const at::Tensor& parameter : share.parameters) elements += parameter.numel();
      share.begin = elements * ranks_->rank() / ranks_->world_size();
      share.end = elements * (ranks_->rank() + 1) / ranks_->world_size();
      share.trained = share.own_values().clone().requires_grad_();
      group.params() = {share.trained};
      shares_.push_back(std::move(share));
    }
  }

  std::vector<at::Tensor> parameters() const override {
    std::vector<at::Tensor> all;
    for (const Share& share : shares_) {
      all.insert(all.end(), share.parameters.begin(), share.parameters.end());
    }
    return all;
  }

  void before_step() override {
    for (Share& share : shares_) {
      const at::Tensor own = share.own_part([](const at::Tensor& parameter) {
        return parameter.grad().defined() ? parameter.grad() : at::zeros_like(parameter).detach();
      });
      share.trained.mutable_grad() = own.clone();
    }
  }

  // Every rank gets the values that the others have updated.
  void after_step() override {
    const at::NoGradGuard no_grad;
    for (Share& share : shares_) {
      share.trained.mutable_grad().reset();
      const at::Tensor all = at::cat(ranks_->all_gather_ragged(share.trained.detach()));
      int64_t offset = 0;
      for (const at::Tensor& parameter : share.parameters) {
        parameter.copy_(all.narrow(0, offset, parameter.numel()).view_as(parameter));
        offset += parameter.numel();
      }
    }
  }

  void parameters_loaded() override {
    const at::NoGradGuard no_grad;
    for (Share& share : shares_) share.trained.copy_(share.own_values());
  }

  std::optional<accelerate::OptimizerLayout> layout() const override {
    accelerate::OptimizerLayout layout;
    size_t number = 0;
    for (const Share& share : shares_) {
      layout.group_sizes.push_back(share.parameters.size());
      auto& pieces = layout.tensors.emplace_back();
      int64_t offset = 0;
      for (const at::Tensor& parameter : share.parameters) {
        const auto place = [&](int64_t at) {
          return std::clamp<int64_t>(at - offset, 0, parameter.numel());
        };
        for (accelerate::TensorBox& box :
             accelerate::boxes_of_range(parameter.sizes(), place(share.begin), place(share.end))) {
          pieces.push_back({.parameter = number, .box = std::move(box)});
        }
        offset += parameter.numel();
        ++number;
      }
    }
    return layout;
  }

 private:
  std::shared_ptr<accelerate::Communicator> ranks_;
  std::vector<Share> shares_;  // by group
};

class AveragedModel final : public accelerate::ModelStrategy {
 public:
  AveragedModel(std::shared_ptr<torch::nn::Module> module,
                std::shared_ptr<accelerate::Communicator> ranks)
      : module_(std::move(module)), ranks_(std::move(ranks)) {}

  void after_backward() override {
    if (gradient_sync() != accelerate::GradientSync::kOn) return;
    for (const at::Tensor& parameter : module_->parameters()) {
      at::Tensor& gradient = parameter.mutable_grad();
      if (gradient.defined()) ranks_->all_reduce(gradient, accelerate::ReduceOp::kMean);
    }
  }

 private:
  std::shared_ptr<torch::nn::Module> module_;
  std::shared_ptr<accelerate::Communicator> ranks_;
};

class ShardedOptimizerStrategy final : public accelerate::Strategy {
 public:
  explicit ShardedOptimizerStrategy(std::shared_ptr<accelerate::Communicator> ranks)
      : ranks_(std::move(ranks)) {}

  std::string_view name() const override { return "sharded_optimizer"; }

  // All ranks begin with the values of rank 0.
  std::shared_ptr<accelerate::ModelStrategy> wrap(
      std::shared_ptr<torch::nn::Module> module) override {
    const at::NoGradGuard no_grad;
    for (at::Tensor& parameter : module->parameters()) ranks_->broadcast(parameter);
    return std::make_shared<AveragedModel>(std::move(module), ranks_);
  }

  std::unique_ptr<accelerate::OptimizerStrategy> prepare_optimizer(
      const accelerate::OptimizerPreparation& preparation) override {
    return std::make_unique<ShardedOptimizer>(preparation.optimizer, ranks_);
  }

  // Each rank looks at its share of the gradients.
  at::Tensor grad_norm(at::TensorList parameters,
                       const accelerate::ClipNormOptions& options) override {
    std::vector<at::Tensor> own;
    for (size_t i = 0; i < parameters.size(); ++i) {
      if (static_cast<int>(i) % ranks_->world_size() == ranks_->rank())
        own.push_back(parameters[i]);
    }
    at::Tensor norm = accelerate::grad_norm(own, options).pow(options.norm_type);
    ranks_->all_reduce(norm);
    return norm.pow(1 / options.norm_type);
  }
  at::Tensor clip_grad_norm_(at::TensorList parameters, double max_norm,
                             const accelerate::ClipNormOptions& options) override {
    const at::Tensor norm = grad_norm(parameters, options);
    accelerate::clip_grads_with_norm_(parameters, max_norm, norm);
    return norm;
  }

 private:
  std::shared_ptr<accelerate::Communicator> ranks_;
};

class ShardedOptimizerFactory final : public accelerate::StrategyFactory {
 public:
  std::unique_ptr<accelerate::Strategy> make(
      const accelerate::StrategyContext& context) const override {
    return std::make_unique<ShardedOptimizerStrategy>(context.ranks);
  }
};

}  // namespace strategies
