#include "strategy/zero/scattered_model.h"

#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>

#include "accelerate/detail/stamped.h"
#include "accelerate/errors.h"
#include "comm/agreement.h"
#include "device/replay_actions.h"
#include "strategy/ddp/local_passes.h"
#include "strategy/ddp/replica_digest.h"

namespace accelerate {
namespace {

class HeldUnits final : public FullParameters::Held {
 public:
  HeldUnits(std::shared_ptr<residency::TouchedUnits> units, residency::WholeScope scope)
      : units_(std::move(units)), scope_(std::move(scope)) {}
  void end() override { scope_.end(); }

 private:
  std::shared_ptr<residency::TouchedUnits> units_;
  residency::WholeScope scope_;
};

}  // namespace

ScatteredModel::ScatteredModel(std::shared_ptr<torch::nn::Module> module,
                               std::vector<at::Tensor> parameters,
                               std::shared_ptr<const ShardPlan> plan, GatheredUnits units,
                               ShardGroups groups, const DdpOptions& options)
    : module_(std::move(module)),
      parameters_(std::move(parameters)),
      plan_(std::move(plan)),
      units_(std::move(units.units)),
      gatherer_(std::move(units.gatherer)),
      groups_(std::move(groups)),
      options_(options),
      buffers_(*module_, groups_.all),
      frozen_(*module_) {
  GradientScatter::Calls calls;
  calls.on_local_gradient = [this] {
    if (!in_backward_) local_.note();  // inside of a window a later pass brings it together
  };
  if (units_) {
    calls.on_taken = [units = units_](size_t bucket) {
      if (bucket < units->size()) units->gradient_done(bucket);
    };
    calls.type_of = [units = units_](size_t bucket) -> std::optional<at::ScalarType> {
      if (bucket >= units->size()) return std::nullopt;
      return units->shard(bucket).scalar_type();
    };
  }
  scatter_ = std::make_unique<GradientScatter>(parameters_, plan_, groups_, std::move(calls));
}

void ScatteredModel::require_usable(const char* where) const {
  if (is_released()) refuse_model(kModelReleased, where);
  if (!in_backward_) return;
  if (!units_) refuse_model(kModelPassFailed, where);
  throw UsageError({.what = kModelPassFailed,
                    .where = where,
                    .hint = "build the module anew, load a checkpoint and prepare it again, on all "
                            "ranks"});
}

// In stage 3 before anything is gathered: what a recording gathers has no values until it is
// replayed.
void ScatteredModel::refuse_recording(const char* where) {
  if (device::ReplayActions::current() == nullptr) return;
  throw UsageError({.what = "a step whose gradients are sharded cannot be recorded as a graph",
                    .where = where,
                    .hint = "train without capture, or with DDP"});
}

void ScatteredModel::before_forward() {
  detail::stamped(*groups_.all, [this] {
    require_usable("forward");
    if (units_) refuse_recording("forward");
    require_no_local_pass("forward");
    if (units_) units_->require_in_place("forward");
    scatter_->hold_hooks(!device::KeptGradients::active());
    if (options_.broadcast_buffers) buffers_.before_forward(*module_, averages());
  });
}

void ScatteredModel::before_backward(const at::Tensor& /*loss*/) {
  require_usable("backward");
  frozen_.require_frozen();
  refuse_recording("backward");
  const bool is_asked_for = std::exchange(sync_next_, false);
  reduces_ = averages() || is_asked_for;
  in_backward_ = true;
  if (reduces_) {
    scatter_->begin(is_alone_);
  } else if (gradient_sync() != GradientSync::kLocal) {  // there are no pieces then
    scatter_->begin_local();
  }
}

void ScatteredModel::after_backward() {
  const bool stays_here = gradient_sync() == GradientSync::kLocal;
  if (!reduces_) {
    stays_here ? scatter_->widen_gradients() : scatter_->finish_local();
  } else if (scatter_->finish()) {
    ++reduced_passes_;
    local_.forget();  // what was there before the pass has been averaged with it
    if (gatherer_) gatherer_->compare_order("backward");  // before an update by it
  }
  if (stays_here) scatter_->spread_pieces();
  if (units_) units_->release_all();
  in_backward_ = false;
}

void ScatteredModel::release() {
  scatter_.reset();
  units_.reset();
}

at::Tensor ScatteredModel::master_of(const at::Tensor& tensor) const {
  const auto place = units_ ? units_->find(tensor) : std::nullopt;
  return place ? units_->piece(place->first, place->second) : tensor;
}

std::unique_ptr<FullParameters::Held> ScatteredModel::hold_full(
    const FullParametersOptions& options) {
  require_usable("full_parameters");
  if (!units_) return nullptr;
  return std::make_unique<HeldUnits>(units_, units_->whole({}, {.write_back = options.write_back,
                                                                .from_rank = options.from_rank}));
}

void ScatteredModel::masters_changed() {
  if (scatter_) scatter_->forget_pieces();
  if (units_) units_->shards_changed();
}

ModelLayout ScatteredModel::layout() const {
  ModelLayout layout;
  for (size_t unit = 0; units_ && unit < units_->size(); ++unit) {
    for (const size_t i : plan_->buckets()[unit].parameters) {
      const at::IntArrayRef shape = parameters_[i].sizes();
      const ElementRange own = plan_->part(i, groups_.shards->rank());
      layout[plan_->name(i)] = {.shape = shape.vec(),
                                .boxes = boxes_of_range(shape, own.begin, own.end)};
    }
  }
  return layout;
}

void ScatteredModel::set_gradient_sync(GradientSync sync) {
  const bool was_local = gradient_sync() == GradientSync::kLocal;
  // Passes that bypassed the accelerator up to here were meant to stay on this rank.
  if (was_local) local_.accept();
  ModelStrategy::set_gradient_sync(sync);
  if (!scatter_) return;
  // Such passes add to gradients of the shape of their parameters.
  if (sync == GradientSync::kLocal) {
    scatter_->spread_pieces();
  } else if (was_local) {
    scatter_->make_pieces();
  }
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
  if (!scatter_) return;
  for (const at::Tensor& dropped : parameters) {
    if (const auto number = plan_->find(dropped)) scatter_->forget_piece(*number);
  }
  if (!local_.any()) return;
  std::unordered_set<const void*> gone;
  for (const at::Tensor& dropped : parameters) gone.insert(dropped.unsafeGetTensorImpl());
  const auto is_left = [&](const at::Tensor& own) {
    return own.grad().defined() && !gone.contains(own.unsafeGetTensorImpl());
  };
  if (std::ranges::none_of(parameters_, is_left)) local_.forget();
}

void ScatteredModel::make_gradients_whole() {
  groups_.all->guard("save_state", [this] { scatter_->make_whole(); });
}

void ScatteredModel::require_fit_to_save(size_t index, const char* where) {
  if (!options_.check_replicas || !averages()) return;
  if (!units_) return require_same_replica(*groups_.all, *module_, index, true, where);
  if (!groups_.replicas) return;
  comm::together(*groups_.all, [&] { require_same_copies(index, where); });
}

void ScatteredModel::require_same_copies(size_t index, const char* where) const {
  NamedValues shards;
  for (size_t unit = 0; unit < units_->size(); ++unit) {
    for (size_t i = 0; i < units_->unit(unit).names.size(); ++i) {
      shards.emplace_back(units_->unit(unit).names[i], units_->piece(unit, i));
    }
  }
  const ReplicaDigest own = ReplicaDigest::of(shards);
  std::optional<ReplicaDigest::Difference> found;
  int first_rank = 0, other_rank = 0;
  const std::vector<std::string> all = groups_.replicas->all_gather_bytes(own.encode());
  for (size_t i = 1; i < all.size() && !found; ++i) {
    ReplicaDigest first = ReplicaDigest::decode(all[0]);
    first.take_names(own);
    found = first.compare(ReplicaDigest::decode(all[i]));
    first_rank = groups_.replicas->global_ranks()[0];
    other_rank = groups_.replicas->global_ranks()[i];
  }
  if (!found) return;
  const std::string text = difference_text(*found, index, first_rank, other_rank);
  if (!found->is_rounding) throw UsageError(difference_error(text, where));
  warn_of_rounding(text);
}

}  // namespace accelerate
