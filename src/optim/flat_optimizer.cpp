#include "optim/flat_optimizer.h"

#include <torch/optim/lbfgs.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "accelerate/errors.h"
#include "device/replay_actions.h"
#include "optim/drop_gradients.h"
#include "optim/step_trace.h"

namespace accelerate {
namespace {

using residency::FlatUnit;

// Calls `visit` with each tensor in the groups.
template <class Visit>
void for_each_in_groups(torch::optim::Optimizer& optimizer, Visit visit) {
  for (auto& group : optimizer.param_groups()) {
    for (at::Tensor& parameter : group.params()) visit(parameter);
  }
}

// `to` takes the place of `from`, together with what is kept for it.
void replace_parameter(torch::optim::Optimizer& optimizer, at::Tensor& from, const at::Tensor& to) {
  auto& states = optimizer.state();
  const auto found = states.find(from.unsafeGetTensorImpl());
  if (found != states.end()) {
    auto state = std::move(found->second);
    states.erase(found);
    states[to.unsafeGetTensorImpl()] = std::move(state);
  }
  from = to;
}

// A recorded update is that of the parameters that have gradients in the recording. Where that
// depends on what was before, a replay needs the same before it.
void require_same_carried(device::ReplayActions& actions, const std::shared_ptr<FlatUnit>& unit,
                          const std::vector<size_t>& updated) {
  std::vector<std::pair<size_t, bool>> carried;
  for (const size_t index : updated) {
    if (!actions.decides(unit->parameters()[index])) {
      carried.emplace_back(index, unit->has_gradient(index));
    }
  }
  if (carried.empty()) return;
  actions.add_check([unit, carried = std::move(carried)] {
    unit->mirror_dropped_gradients();
    return std::ranges::all_of(carried, [&](const auto& item) {
      return unit->parameters()[item.first].grad().defined() == item.second;
    });
  });
}

}  // namespace

// Looks at what the user's optimizer does.
class FlatOptimizer::Watch final : public residency::MasterUser {
 public:
  Watch(torch::optim::Optimizer& optimizer, const FlatUnits& units)
      : optimizer_(optimizer),
        units_(units.begin(), units.end()),
        // Changes its parameters many times within one step that it counts.
        counts_(dynamic_cast<const torch::optim::LBFGS*>(&optimizer) == nullptr) {
    updates_seen();
  }

  bool may_have_updated(bool passed) const override {
    if (!counts_) return passed;
    const Traces now = traces();
    if (now.empty() || now.size() != seen_.size()) return passed;
    for (size_t i = 0; i < now.size(); ++i) {
      if (!now[i] || !seen_[i]) return passed;
      if (now[i]->is_past(*seen_[i])) return true;
    }
    return false;
  }
  void updates_seen() override { seen_ = traces(); }
  void unit_released() override {
    is_released = true;
    for_each_in_groups(optimizer_, [this](at::Tensor& parameter) {
      for (const auto& weak : units_) {
        const auto unit = weak.lock();
        const auto index = unit ? unit->find(parameter) : std::nullopt;
        if (!index || unit->parameters()[*index].is_same(parameter)) continue;
        replace_parameter(optimizer_, parameter, unit->parameters()[*index]);
        return;
      }
    });
  }

  bool is_released = false;

 private:
  using Traces = std::vector<std::optional<StepTrace>>;

  // Of each parameter: an update leaves out those without gradient.
  Traces traces() const {
    Traces all;
    for (const auto& group : optimizer_.param_groups()) {
      for (const at::Tensor& parameter : group.params()) {
        all.push_back(StepTrace::of(optimizer_, parameter));
      }
    }
    return all;
  }

  torch::optim::Optimizer& optimizer_;
  std::vector<std::weak_ptr<FlatUnit>> units_;
  bool counts_;
  Traces seen_;
};

FlatOptimizer::FlatOptimizer(torch::optim::Optimizer& optimizer,
                             std::shared_ptr<const KnownFlatUnits> known,
                             std::function<void(const std::vector<at::Tensor>&)> before_update)
    : OptimizerStrategy(optimizer),
      known_(std::move(known)),
      before_update_(std::move(before_update)) {
  for (const auto& weak : *known_) {
    const auto unit = weak.lock();
    if (!unit || unit->is_released()) continue;
    bool has_some = false;
    for_each_in_groups(optimizer, [&](const at::Tensor& parameter) {
      has_some = has_some || unit->find(parameter).has_value();
    });
    if (has_some) units_.push_back(unit);
  }
  (void)takes_flat_update(optimizer, units_);  // throws before anything has changed
  for_each_in_groups(optimizer, [&](at::Tensor& parameter) {
    for (const auto& unit : units_) {
      const auto index = unit->find(parameter);
      if (!index) continue;
      replace_parameter(optimizer, parameter, unit->master(*index));
      break;
    }
  });
  watch_ = std::make_shared<Watch>(optimizer, units_);
  for (const auto& unit : units_) unit->add_user(watch_);
}

FlatOptimizer::~FlatOptimizer() = default;

std::vector<at::Tensor> FlatOptimizer::parameters() const {
  std::vector<at::Tensor> all = parameters_of(optimizer());
  for (at::Tensor& parameter : all) {
    for (const auto& unit : units_) {
      const auto index = unit->find(parameter);
      if (!index) continue;
      parameter = unit->parameters()[*index];
      break;
    }
  }
  return all;
}

void FlatOptimizer::before_step() {
  if (watch_->is_released) {
    throw UsageError({.what = "a model of this optimizer was released by free_memory()",
                      .where = "step",
                      .hint = "prepare the model and the optimizer again"});
  }
  // A model that came after its optimizer, or parameters that came to it later.
  for_each_in_groups(optimizer(), [this](const at::Tensor& parameter) {
    for (const auto& weak : *known_) {
      const auto unit = weak.lock();
      const auto index = unit && !unit->is_released() ? unit->find(parameter) : std::nullopt;
      if (!index || unit->master(*index).is_same(parameter)) continue;
      throw UsageError({.what = "'" + unit->names()[*index] +
                                "' came to the optimizer by itself, "
                                "or its model was prepared after the optimizer: updates would miss "
                                "the float32 master",
                        .where = "step",
                        .hint = "prepare models before their optimizers, or in one call, with all "
                                "parameters in place"});
    }
  });
  for (const auto& unit : units_) {
    unit->mirror_dropped_gradients();
    unit->put_gradients_back();
  }
  if (before_update_) before_update_(parameters());
  auto* actions = device::ReplayActions::current();
  const auto updated = own_indices();
  for (size_t i = 0; i < units_.size(); ++i) {
    if (actions != nullptr) {
      units_[i]->require_in_place("step");
      require_same_carried(*actions, units_[i], updated[i]);
    } else {
      units_[i]->refresh("step");
    }
  }
}

std::vector<std::vector<size_t>> FlatOptimizer::own_indices() const {
  std::vector<std::vector<size_t>> indices(units_.size());
  for (const at::Tensor& parameter : parameters_of(optimizer())) {
    for (size_t i = 0; i < units_.size(); ++i) {
      const auto index = units_[i]->find(parameter);
      if (!index) continue;
      indices[i].push_back(*index);
      break;
    }
  }
  return indices;
}

void FlatOptimizer::after_step() {
  auto updated = own_indices();
  for (size_t i = 0; i < units_.size(); ++i) {
    std::erase_if(updated[i], [&](size_t index) { return !units_[i]->has_gradient(index); });
  }
  auto note = [units = units_, updated = std::move(updated), weak = std::weak_ptr(watch_)] {
    for (size_t i = 0; i < units.size(); ++i) units[i]->values_updated(updated[i]);
    if (const auto watch = weak.lock()) watch->updates_seen();
  };
  if (auto* actions = device::ReplayActions::current()) {
    watch_->updates_seen();
    actions->add_after(std::move(note));  // the replays are the updates
  } else {
    note();
  }
}

// Counts of steps may have gone down: those that follow are new all the same.
void FlatOptimizer::parameters_loaded() { watch_->updates_seen(); }

void FlatOptimizer::drop_gradients(bool set_to_none) {
  drop_flat_gradients(units_, parameters(), set_to_none);
}

std::unique_ptr<OptimizerStep> FlatOptimizer::make_step() {
  if (units_.empty()) return make_optimizer_step(optimizer());
  if (takes_flat_update(optimizer(), units_)) {
    return std::make_unique<FlatAdamWStep>(optimizer(), units_);
  }
  return std::make_unique<MasterStep>(make_optimizer_step(optimizer()), units_);
}

void drop_flat_gradients(const FlatUnits& units, at::TensorList parameters, bool set_to_none) {
  std::vector<std::vector<size_t>> dropped(units.size());
  std::vector<at::Tensor> others;
  for (const at::Tensor& parameter : parameters) {
    bool found = false;
    for (size_t i = 0; i < units.size() && !found; ++i) {
      const auto index = units[i]->find(parameter);
      if (!index) continue;
      dropped[i].push_back(*index);
      found = true;
    }
    if (!found) others.push_back(parameter);
  }
  for (size_t i = 0; i < units.size(); ++i) {
    std::ranges::sort(dropped[i]);
    const auto repeats = std::ranges::unique(dropped[i]);
    dropped[i].erase(repeats.begin(), repeats.end());
    if (dropped[i].empty()) continue;
    units[i]->drop_gradients(dropped[i], set_to_none);
    auto* actions = device::ReplayActions::current();
    if (actions == nullptr || !set_to_none) continue;
    for (const size_t index : dropped[i]) actions->note_decided(units[i]->parameters()[index]);
    actions->add_after([unit = units[i], indices = dropped[i]] { unit->note_dropped(indices); });
  }
  if (!others.empty()) accelerate::drop_gradients(others, set_to_none);
}

}  // namespace accelerate
