#include "strategy/zero/planned_models.h"

#include <algorithm>
#include <string>
#include <unordered_set>
#include <utility>

#include "accelerate/log.h"
#include "strategy/ddp/exchanged_model.h"

namespace accelerate {
namespace {

// After as many without a step of theirs a program hardly accumulates gradients.
constexpr int64_t kManyPasses = 32;

// How many passes have averaged the gradients of a model; 0 where none could.
int64_t passes_of(const ModelStrategy& model) {
  const auto* exchanged = dynamic_cast<const ExchangedModel*>(&model);
  return exchanged == nullptr ? 0 : exchanged->reduced_passes();
}

}  // namespace

bool PlannedModel::holds_local() const {
  const auto held = model.lock();
  return held && passes_before_local == passes_of(*held);
}

void PlannedModels::add(const std::shared_ptr<ModelStrategy>& model,
                        std::shared_ptr<const ShardPlan> plan,
                        std::shared_ptr<residency::TouchedUnits> units) {
  std::erase_if(models_, [](const PlannedModel& planned) { return planned.is_gone(); });
  models_.push_back({.model = model, .plan = std::move(plan), .units = std::move(units)});
}

std::optional<PlannedModels::Found> PlannedModels::find(const at::Tensor& parameter) const {
  for (const PlannedModel& planned : models_) {
    if (planned.is_gone()) continue;
    if (const auto number = planned.plan->find(parameter)) {
      return Found{.model = planned.model.lock(),
                   .plan = planned.plan,
                   .units = planned.units,
                   .parameter = *number,
                   .holds_local = planned.holds_local()};
    }
  }
  return std::nullopt;
}

void PlannedModels::note_pass(const std::vector<std::shared_ptr<ModelStrategy>>& models,
                              bool warns) {
  bool is_averaged = false;
  for (PlannedModel& planned : models_) {
    const auto model = planned.model.lock();
    if (!model || std::ranges::find(models, model) == models.end()) continue;
    const GradientSync sync = model->gradient_sync();
    is_averaged = is_averaged || sync == GradientSync::kOn;
    if (sync == GradientSync::kLocal) planned.passes_before_local = passes_of(*model);
  }
  if (!is_averaged || !passes_without_step_ || ++*passes_without_step_ != kManyPasses) return;
  if (!warns || std::exchange(has_warned_, true)) return;
  log(LogLevel::kWarning,
      std::to_string(kManyPasses) +
          " backward passes of a sharded model, and no step() of the optimizer that prepare() "
          "returned: the optimizer that was given to prepare() holds shares of the parameters, and "
          "its own step() updates nothing");
}

void PlannedModels::note_dropped(const std::vector<at::Tensor>& parameters) {
  for (PlannedModel& planned : models_) {
    if (!planned.passes_before_local) continue;
    std::unordered_set<size_t> dropped;
    for (const at::Tensor& parameter : parameters) {
      if (const auto number = planned.plan->find(parameter)) dropped.insert(*number);
    }
    if (dropped.size() == planned.plan->size()) planned.passes_before_local.reset();
  }
}

}  // namespace accelerate
