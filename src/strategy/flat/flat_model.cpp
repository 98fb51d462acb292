#include "strategy/flat/flat_model.h"

#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <string>
#include <utility>

#include "accelerate/detail/stamped.h"
#include "comm/agreement.h"
#include "device/replay_actions.h"
#include "strategy/ddp/local_passes.h"
#include "strategy/ddp/replica_digest.h"

namespace accelerate {
namespace {

void require_not_released(const residency::FlatUnit& unit, const char* where) {
  if (unit.is_released()) refuse_model(kModelReleased, where);
}

}  // namespace

FlatModel::FlatModel(std::shared_ptr<torch::nn::Module> module,
                     std::shared_ptr<residency::FlatUnit> unit, std::shared_ptr<Communicator> ranks,
                     const DdpOptions& options)
    : module_(std::move(module)),
      unit_(std::move(unit)),
      ranks_(std::move(ranks)),
      options_(options),
      buffers_(*module_, ranks_),
      frozen_(*module_) {
  if (ranks_->world_size() == 1) return;
  reducer_ = std::make_unique<UnitReducer>(
      unit_, ranks_, static_cast<int64_t>(options.bucket_cap_mb * 1024 * 1024), [this] {
        if (in_backward_) return;  // inside a window: a later pass brings it together
        local_.note();
      });
}

void FlatModel::require_usable(const char* where) const {
  require_not_released(*unit_, where);
  if (!usable()) refuse_model(kModelPassFailed, where);
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
  if (reducer_ == nullptr || !options_.broadcast_buffers) return;
  buffers_.before_forward(*module_, averages());
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
  // What was frozen has no place in the vectors: its updates would be those of another type.
  frozen_.require_frozen();
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
    local_.forget();
  }
  in_backward_ = false;
}

void FlatModel::set_gradient_sync(GradientSync sync) {
  // Passes that bypassed the accelerator up to here were meant to stay on this rank.
  if (gradient_sync() == GradientSync::kLocal) local_.accept();
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
  if (!options_.check_replicas || !averages() || !local_.any_by_mistake()) return;
  throw UsageError(LocalPasses::pass_error(where));
}

void FlatModel::require_synchronised(const std::vector<at::Tensor>& parameters) const {
  if (!averages()) return;
  const auto is_own = [this](const at::Tensor& parameter) { return equalizes(parameter); };
  if (std::ranges::any_of(parameters, is_own)) local_.require_none();
}

void FlatModel::before_zero_grad(const std::vector<at::Tensor>& parameters) {
  if (!local_.any()) return;
  std::vector<at::Tensor> others;
  if (unit_->is_covered_by(parameters, others)) local_.forget();
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
