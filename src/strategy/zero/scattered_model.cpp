#include "strategy/zero/scattered_model.h"

#include <torch/nn/module.h>

#include <algorithm>
#include <utility>

#include "accelerate/detail/stamped.h"
#include "accelerate/errors.h"
#include "device/replay_actions.h"
#include "strategy/ddp/local_passes.h"
#include "strategy/ddp/replica_digest.h"

namespace accelerate {

ScatteredModel::ScatteredModel(std::shared_ptr<torch::nn::Module> module,
                               std::vector<at::Tensor> parameters,
                               std::shared_ptr<const ShardPlan> plan,
                               std::shared_ptr<Communicator> ranks, const DdpOptions& options)
    : module_(std::move(module)),
      parameters_(std::move(parameters)),
      plan_(std::move(plan)),
      ranks_(std::move(ranks)),
      options_(options),
      buffers_(*module_, ranks_),
      frozen_(*module_) {
  scatter_ = std::make_unique<GradientScatter>(parameters_, plan_, ranks_, [this] {
    if (!in_backward_) local_.note();  // inside of a window a later pass brings it together
  });
}

void ScatteredModel::require_usable(const char* where) const {
  if (is_released()) refuse_model(kModelReleased, where);
  if (in_backward_) refuse_model(kModelPassFailed, where);
}

void ScatteredModel::before_forward() {
  detail::stamped(*ranks_, [this] {
    require_usable("forward");
    require_no_local_pass("forward");
    scatter_->hold_hooks(!device::KeptGradients::active());
    if (options_.broadcast_buffers) buffers_.before_forward(*module_, averages());
  });
}

void ScatteredModel::before_backward(const at::Tensor& /*loss*/) {
  require_usable("backward");
  frozen_.require_frozen();
  if (device::ReplayActions::current() != nullptr) {
    throw UsageError({.what = "a step whose gradients are sharded cannot be recorded as a graph",
                      .where = "backward",
                      .hint = "train without capture, or with DDP"});
  }
  const bool is_asked_for = std::exchange(sync_next_, false);
  reduces_ = averages() || is_asked_for;
  in_backward_ = true;
  if (reduces_) {
    scatter_->begin(is_alone_);
  } else {
    scatter_->begin_local();
  }
}

void ScatteredModel::after_backward() {
  if (!reduces_) {
    scatter_->finish_local();
  } else if (scatter_->finish()) {
    ++reduced_passes_;
    local_.forget();  // what was there before the pass has been averaged with it
  }
  in_backward_ = false;
}

void ScatteredModel::set_gradient_sync(GradientSync sync) {
  // Passes that bypassed the accelerator up to here were meant to stay on this rank.
  if (gradient_sync() == GradientSync::kLocal) local_.accept();
  ModelStrategy::set_gradient_sync(sync);
}

void ScatteredModel::require_no_local_pass(const char* where) const {
  if (!options_.check_replicas || !averages() || is_released()) return;
  if (local_.any_by_mistake()) throw UsageError(LocalPasses::pass_error(where));
}

void ScatteredModel::require_synchronised(const std::vector<at::Tensor>& parameters) const {
  if (!averages()) return;
  const auto is_own = [this](const at::Tensor& parameter) {
    return plan_->find(parameter).has_value();
  };
  if (std::ranges::any_of(parameters, is_own)) local_.require_none();
}

bool ScatteredModel::equalizes(const at::Tensor& parameter) const {
  return scatter_ != nullptr && plan_->find(parameter) && !has_piece(parameter);
}

bool ScatteredModel::has_piece(const at::Tensor& parameter) const {
  const auto number = plan_->find(parameter);
  return number && scatter_ != nullptr && scatter_->is_piece(*number);
}

void ScatteredModel::before_zero_grad(const std::vector<at::Tensor>& parameters) {
  if (!local_.any()) return;
  const auto is_dropped = [&](const at::Tensor& own) {
    return std::ranges::any_of(parameters,
                               [&](const at::Tensor& dropped) { return dropped.is_same(own); });
  };
  if (std::ranges::all_of(parameters_, is_dropped)) local_.forget();
}

void ScatteredModel::prepare_save(size_t index, const char* where) {
  ranks_->guard("save_state", [&] { scatter_->make_whole(); });
  if (!options_.check_replicas || !averages()) return;
  require_same_replica(*ranks_, *module_, index, true, where);
}

}  // namespace accelerate
