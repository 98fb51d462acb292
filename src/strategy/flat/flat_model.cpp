#include "strategy/flat/flat_model.h"

#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <string>
#include <utility>

#include "accelerate/detail/stamped.h"
#include "comm/agreement.h"
#include "comm/groups/process_group.h"
#include "device/replay_actions.h"
#include "strategy/ddp/local_passes.h"
#include "strategy/ddp/replica_digest.h"
#include "strategy/ddp/tensor_broadcast.h"

namespace accelerate {
namespace {

[[noreturn]] void refuse_use(const char* why, const char* where) {
  throw UsageError({.what = why, .where = where, .hint = "prepare it again, on all ranks"});
}

void require_not_released(const residency::FlatUnit& unit, const char* where) {
  if (unit.is_released()) refuse_use("this model was released by free_memory()", where);
}

}  // namespace

FlatModel::FlatModel(int64_t number, std::shared_ptr<torch::nn::Module> module,
                     std::shared_ptr<residency::FlatUnit> unit, std::shared_ptr<Communicator> ranks,
                     const DdpOptions& options)
    : number_(number),
      module_(std::move(module)),
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
  require_not_released(*unit_, where);
  if (!usable()) refuse_use("an earlier backward pass of this model failed", where);
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
  detail::stamped(*ranks_, [this] { prepare_forward(); });
}

void FlatModel::prepare_forward() {
  require_usable("forward");
  require_no_local_pass("forward");
  const bool trains = at::GradMode::is_enabled();
  if (auto* actions = device::ReplayActions::current()) {
    follow_replays(*actions, trains);
  } else {
    unit_->refresh("forward");
    if (trains) unit_->note_pass();
  }
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

// What a recorded pass would copy would be copied by each replay: these look by themselves.
void FlatModel::follow_replays(device::ReplayActions& actions, bool trains) const {
  unit_->require_in_place("forward");
  actions.add([unit = unit_, recorded = unit_->versions_of_values(), is_new = true]() mutable {
    require_not_released(*unit, "captured step");
    if (is_new && unit->versions_of_values() != recorded) {
      throw UsageError({.what = "a step that was recorded as a graph writes to parameters itself, "
                                "and their float32 masters would not follow when it is replayed",
                        .where = "captured step",
                        .hint = "write to them outside of the captured step"});
    }
    is_new = false;
    unit->refresh("captured step");
  });
  if (trains) actions.add_after([unit = unit_] { unit->note_pass(); });
}

void FlatModel::before_backward(const at::Tensor& /*loss*/) {
  require_usable("backward");
  require_same_trainable_set();
  if (auto* actions = device::ReplayActions::current()) {
    if (unit_->has_foreign_gradients()) {
      throw UsageError({.what = "gradients were assigned before a step that is recorded, which "
                                "would add them in each replay",
                        .where = "backward",
                        .hint = "call zero_grad() first"});
    }
    // Those that were dropped since the last replay are zeros when the next one adds to them.
    actions->add([unit = unit_] {
      unit->mirror_dropped_gradients();
      unit->put_gradients_back();
    });
  }
  unit_->settle_clip();
  unit_->put_gradients_back();
  unit_->offer_gradients();
  const bool is_asked_for = std::exchange(sync_next_, false);
  reduces_ = reducer_ != nullptr && (averages() || is_asked_for);
  in_backward_ = reducer_ != nullptr;
  if (reduces_) reducer_->arm(is_alone_);
}

void FlatModel::after_backward() {
  if (auto* actions = device::ReplayActions::current()) {
    std::vector<size_t> reached = unit_->reached();
    for (const size_t index : reached) actions->note_decided(unit_->parameters()[index]);
    actions->add_after(
        [unit = unit_, reached = std::move(reached)] { unit->declare_gradients(reached); });
  }
  unit_->withdraw_gradients();
  if (reduces_ && reducer_->finish()) {
    ++reduced_passes_;
    // What was there before the pass has been averaged with it.
    local_gradients_ = local_is_meant_ = false;
  }
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
  const auto index = unit_->is_released() ? std::nullopt : unit_->find(tensor);
  if (!index) return tensor;
  unit_->refresh("the exact value of a parameter");
  unit_->adopt_written_values(*index);
  return unit_->master(*index);
}

void FlatModel::masters_changed() { unit_->masters_moved(); }

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
    // Also what an optimizer has done that was not prepared: it leaves no trace.
    unit_->adopt_written_values();
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
