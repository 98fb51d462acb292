#include "strategy/flat/flat_model.h"

#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <string>
#include <utility>

#include "comm/agreement.h"
#include "comm/groups/process_group.h"
#include "device/replay_actions.h"
#include "strategy/ddp/local_passes.h"
#include "strategy/ddp/replica_digest.h"
#include "strategy/ddp/tensor_broadcast.h"

namespace accelerate {
namespace {

// An optimizer that was not prepared leaves no trace on what it changes.
bool values_follow_masters(const residency::FlatUnit& unit) {
  if (!unit.masters().defined()) return true;
  // By bits: what is not a number equals nothing, not even itself.
  const at::ScalarType bits = unit.values().element_size() == 4 ? at::kInt : at::kShort;
  return at::equal(unit.values().view(bits),
                   unit.masters().to(unit.values().scalar_type()).view(bits));
}

}  // namespace

FlatModel::FlatModel(std::shared_ptr<torch::nn::Module> module,
                     std::shared_ptr<residency::FlatUnit> unit, std::shared_ptr<Communicator> ranks,
                     const DdpOptions& options)
    : module_(std::move(module)),
      unit_(std::move(unit)),
      ranks_(std::move(ranks)),
      options_(options),
      buffers_(module_->buffers()) {
  for (const auto& item : module_->named_parameters()) {
    if (!item.value().requires_grad()) frozen_.emplace_back(item.key(), item.value());
  }
  if (ranks_->world_size() == 1) return;
  reducer_ = std::make_unique<UnitReducer>(
      unit_, ranks_, static_cast<int64_t>(options.bucket_cap_mb * 1024 * 1024), [this] {
        if (in_backward_) return;  // inside a window: a later pass brings it together
        local_gradients_ = true;
      });
}

void FlatModel::require_usable(const char* where) const {
  if (usable()) return;
  throw UsageError({.what = unit_->is_released() ? "this model was released by free_memory()"
                                                 : "an earlier backward pass of this model failed",
                    .where = where,
                    .hint = "prepare it again, on all ranks"});
}

// What was frozen has no place in the vectors: its gradients would be those of this rank alone, and
// its updates those of another type.
void FlatModel::require_same_trainable_set() const {
  for (const auto& [name, parameter] : frozen_) {
    if (!parameter.requires_grad()) continue;
    throw UsageError({.what = "parameter '" + name +
                              "' was frozen when the model was prepared and needs a gradient now",
                      .where = "backward",
                      .hint = "free_memory() and prepare the model again, on all ranks"});
  }
}

void FlatModel::before_forward() {
  require_usable("forward");
  require_no_local_pass("forward");
  unit_->refresh("forward");
  const bool trains = at::GradMode::is_enabled();
  if (trains) unit_->note_pass();
  if (reducer_ != nullptr) reducer_->hold_hooks(!device::KeptGradients::active());
  if (reducer_ == nullptr || !options_.broadcast_buffers || buffers_.empty()) return;
  const bool training = module_->is_training() && trains;
  if (averages() && (training || buffers_changed_)) {
    ranks_->guard("broadcast of buffers in forward",
                  [&] { broadcast_tensors(comm::process_group_of(*ranks_), buffers_, 0); });
    buffers_changed_ = false;
  }
  buffers_changed_ = buffers_changed_ || training;
}

void FlatModel::before_backward(const at::Tensor& /*loss*/) {
  require_usable("backward");
  require_same_trainable_set();
  unit_->settle_clip();
  unit_->put_gradients_back();
  const bool is_asked_for = std::exchange(sync_next_, false);
  reduces_ = reducer_ != nullptr && (averages() || is_asked_for);
  in_backward_ = reducer_ != nullptr;
  if (reduces_) reducer_->arm(is_alone_);
}

void FlatModel::after_backward() {
  // What was there before the pass has been averaged with it.
  if (reduces_ && reducer_->finish()) local_gradients_ = local_is_meant_ = false;
  in_backward_ = false;
}

void FlatModel::set_gradient_sync(GradientSync sync) {
  // Passes that bypassed the accelerator up to here were meant to stay on this rank.
  if (gradient_sync() == GradientSync::kLocal && local_gradients_) local_is_meant_ = true;
  ModelStrategy::set_gradient_sync(sync);
}

void FlatModel::release() {
  reducer_.reset();
  unit_->release();
}

at::Tensor FlatModel::master_of(const at::Tensor& tensor) const {
  const auto index = unit_->find(tensor);
  return index ? unit_->master(*index) : tensor;
}

void FlatModel::masters_changed() { unit_->masters_to_values(); }

void FlatModel::require_no_local_pass(const char* where) const {
  if (!options_.check_replicas || !averages() || local_is_meant_ || !local_gradients_) return;
  throw UsageError(LocalPasses::pass_error(where));
}

void FlatModel::require_synchronised(const std::vector<at::Tensor>& parameters) const {
  if (!local_gradients_ || !averages()) return;
  const auto is_own = [this](const at::Tensor& parameter) {
    return unit_->find(parameter).has_value();
  };
  if (std::ranges::none_of(parameters, is_own)) return;
  throw UsageError({.what = "the gradients are those of this rank alone: they did not go "
                            "through accelerator.backward(loss)",
                    .where = "optimizer.step()",
                    .hint = "call accelerator.backward(loss) instead of loss.backward()"});
}

void FlatModel::before_zero_grad(const std::vector<at::Tensor>& parameters) {
  if (!local_gradients_) return;
  std::vector<at::Tensor> others;
  if (unit_->is_covered_by(parameters, others)) local_gradients_ = local_is_meant_ = false;
}

void FlatModel::require_fit_to_save(size_t index, const char* where) {
  comm::together(*ranks_, [&] {
    unit_->refresh(where);
    if (values_follow_masters(*unit_)) return;
    throw UsageError({.what = "the parameters of model " + std::to_string(index) +
                              " were changed by something that was not prepared, such as an "
                              "optimizer: their float32 masters do not know of it",
                      .where = where,
                      .hint = "prepare the optimizer, or write to parameters in place"});
  });
  if (reducer_ == nullptr || !options_.check_replicas || !averages()) return;
  require_same_replica(*ranks_, *module_, index, true, where);
  if (!unit_->masters().defined()) return;
  const auto bits = sum_of_bits(unit_->masters()).item<int64_t>();
  comm::require_same(*ranks_, std::to_string(bits), [&](const comm::RankDifference& difference) {
    const std::string what = "what the masters of model " + std::to_string(index) + " hold";
    return difference_error(difference_text(what, difference.first_rank, difference.rank), where);
  });
}

}  // namespace accelerate
