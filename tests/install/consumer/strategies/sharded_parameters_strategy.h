// A strategy of a user: every rank keeps its share of each parameter, of its gradient and of the
// optimizer's state, as ZeRO's third stage does. Parameters are whole from the forward pass to the
// end of the backward pass. Needs the public headers of Accelerate alone.
#pragma once

#include <ATen/ATen.h>
#include <accelerate/clip.h>
#include <accelerate/communicator.h>
#include <accelerate/strategy.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace strategies {

// A parameter and the elements of it that this rank keeps.
struct ShardedParameter {
  std::string name;
  at::Tensor parameter;
  std::vector<int64_t> shape;  // of the whole
  int64_t begin = 0;
  int64_t end = 0;
  at::Tensor own{};                  // one row; the parameter itself between steps
  bool has_own_gradient = false;     // .grad() is that of `own`, not of the whole
  at::Tensor earlier_gradient = {};  // of `own`, put aside while a pass makes that of the whole

  at::Tensor cut(const at::Tensor& whole) const {
    return whole.detach().reshape({-1}).narrow(0, begin, end - begin).clone();
  }
  accelerate::TensorLayout layout() const {
    return {.shape = shape, .boxes = accelerate::boxes_of_range(shape, begin, end)};
  }
};

class ShardedModel final : public accelerate::ModelStrategy {
 public:
  ShardedModel(const torch::nn::Module& module, std::shared_ptr<accelerate::Communicator> ranks)
      : ranks_(std::move(ranks)) {
    const at::NoGradGuard no_grad;
    for (auto& item : module.named_parameters()) {
      at::Tensor& parameter = item.value();
      if (find(parameter) != nullptr) continue;  // under another name
      ranks_->broadcast(parameter);              // all ranks begin with the values of rank 0
      ShardedParameter sharded{
          .name = item.key(), .parameter = parameter, .shape = parameter.sizes().vec()};
      sharded.begin = parameter.numel() * ranks_->rank() / ranks_->world_size();
      sharded.end = parameter.numel() * (ranks_->rank() + 1) / ranks_->world_size();
      sharded.own = sharded.cut(parameter);
      parameters_.push_back(std::move(sharded));
    }
    give_up();
  }

  void before_backward(const at::Tensor&) override {
    for (ShardedParameter& sharded : parameters_) {
      at::Tensor& gradient = sharded.parameter.mutable_grad();
      if (!std::exchange(sharded.has_own_gradient, false) || !gradient.defined()) continue;
      sharded.earlier_gradient = std::exchange(gradient, {});
    }
  }

  void after_backward() override {
    const at::NoGradGuard no_grad;
    give_up();
    if (gradient_sync() != accelerate::GradientSync::kOn) return;
    for (ShardedParameter& sharded : parameters_) {
      at::Tensor& gradient = sharded.parameter.mutable_grad();
      at::Tensor mean = gradient.defined() ? gradient : at::zeros(sharded.shape, options(sharded));
      ranks_->all_reduce(mean, accelerate::ReduceOp::kMean);
      gradient = sharded.cut(mean);
      if (sharded.earlier_gradient.defined()) {
        gradient.add_(std::exchange(sharded.earlier_gradient, {}));
      }
      sharded.has_own_gradient = true;
    }
  }

  // The parameters hold this rank's part alone.
  void give_up() {
    for (ShardedParameter& sharded : parameters_) sharded.parameter.set_data(sharded.own);
    is_whole_ = false;
  }

  at::Tensor master_of(const at::Tensor& tensor) const override {
    const ShardedParameter* sharded = find(tensor);
    return sharded != nullptr ? sharded->own : tensor;
  }
  // By load_state(), which gives gradients of an open window back as whole ones.
  void masters_changed() override {
    give_up();
    for (ShardedParameter& sharded : parameters_) sharded.has_own_gradient = false;
  }

  accelerate::ModelLayout layout() const override {
    accelerate::ModelLayout layout;
    for (const ShardedParameter& sharded : parameters_) layout[sharded.name] = sharded.layout();
    return layout;
  }

  const ShardedParameter* find(const at::Tensor& parameter) const {
    for (const ShardedParameter& sharded : parameters_) {
      if (sharded.parameter.is_same(parameter)) return &sharded;
    }
    return nullptr;
  }

 protected:
  void before_forward() override {
    if (std::exchange(is_whole_, true)) return;
    const at::NoGradGuard no_grad;
    for (ShardedParameter& sharded : parameters_) {
      sharded.parameter.set_data(
          at::cat(ranks_->all_gather_ragged(sharded.own)).view(sharded.shape));
    }
  }

 private:
  static at::TensorOptions options(const ShardedParameter& sharded) {
    return sharded.own.options();
  }

  std::shared_ptr<accelerate::Communicator> ranks_;
  std::vector<ShardedParameter> parameters_;
  bool is_whole_ = false;
};

// Updates this rank's part of the parameters, which the user's optimizer holds between steps.
class ShardedUpdate final : public accelerate::OptimizerStrategy {
 public:
  ShardedUpdate(torch::optim::Optimizer& optimizer,
                std::vector<std::shared_ptr<ShardedModel>> models)
      : OptimizerStrategy(optimizer), models_(std::move(models)) {}

  // After a forward pass alone, as for an evaluation, they are whole.
  void before_step() override {
    for (const auto& model : models_) model->give_up();
  }

  std::optional<accelerate::OptimizerLayout> layout() const override {
    accelerate::OptimizerLayout layout;
    for (const auto& group : optimizer().param_groups()) {
      layout.group_sizes.push_back(group.params().size());
      for (const at::Tensor& parameter : group.params()) {
        const accelerate::TensorLayout own = layout_of(parameter);
        auto& pieces = layout.tensors.emplace_back();
        for (const accelerate::TensorBox& box : own.boxes) {
          pieces.push_back({.parameter = layout.shapes.size(), .box = box});
        }
        layout.shapes.push_back(own.shape);
      }
    }
    return layout;
  }

 private:
  // Whole where no model that was prepared has it.
  accelerate::TensorLayout layout_of(const at::Tensor& parameter) const {
    for (const auto& model : models_) {
      if (const ShardedParameter* sharded = model->find(parameter)) return sharded->layout();
    }
    return {.shape = parameter.sizes().vec(),
            .boxes = accelerate::boxes_of_range(parameter.sizes(), 0, parameter.numel())};
  }

  std::vector<std::shared_ptr<ShardedModel>> models_;
};

class ShardedParametersStrategy final : public accelerate::Strategy {
 public:
  explicit ShardedParametersStrategy(std::shared_ptr<accelerate::Communicator> ranks)
      : ranks_(std::move(ranks)) {}

  std::string_view name() const override { return "sharded_parameters"; }

  std::shared_ptr<accelerate::ModelStrategy> wrap(
      std::shared_ptr<torch::nn::Module> module) override {
    return std::make_shared<ShardedModel>(*module, ranks_);
  }

  std::unique_ptr<accelerate::OptimizerStrategy> prepare_optimizer(
      const accelerate::OptimizerPreparation& preparation) override {
    std::vector<std::shared_ptr<ShardedModel>> models;
    for (const auto& model : preparation.models) {
      models.push_back(std::dynamic_pointer_cast<ShardedModel>(model));
    }
    return std::make_unique<ShardedUpdate>(preparation.optimizer, std::move(models));
  }

  // Each rank has its part of the gradients.
  at::Tensor grad_norm(at::TensorList parameters,
                       const accelerate::ClipNormOptions& options) override {
    at::Tensor norm = accelerate::grad_norm(parameters, options).pow(options.norm_type);
    ranks_->all_reduce(norm);
    return norm.pow(1 / options.norm_type);
  }

 private:
  std::shared_ptr<accelerate::Communicator> ranks_;
};

class ShardedParametersFactory final : public accelerate::StrategyFactory {
 public:
  std::unique_ptr<accelerate::Strategy> make(
      const accelerate::StrategyContext& context) const override {
    return std::make_unique<ShardedParametersStrategy>(context.ranks);
  }
};

}  // namespace strategies
