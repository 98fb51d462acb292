#include "residency/touch/unit_gradients.h"

#include <algorithm>
#include <string>
#include <utility>

#include "accelerate/errors.h"

namespace accelerate::residency {

UnitGradients::UnitGradients(const TouchedUnits& units,
                             std::function<void(size_t unit)> on_complete)
    : units_(units), on_complete_(std::move(on_complete)) {
  std::vector<at::Tensor> parameters;
  for (size_t unit = 0; unit < units.size(); ++unit) {
    Counted& counted = counted_.emplace_back();
    const auto& own = units.unit(unit).parameters;
    counted.came.resize(own.size());
    for (size_t index = 0; index < own.size(); ++index) {
      counted.wanted += own[index].requires_grad() ? 1 : 0;
      parameters.push_back(own[index]);
      places_.emplace_back(unit, index);
    }
  }
  hooks_ = std::make_unique<compat::GradientHooks>(
      parameters, [this](size_t number) { came(places_[number].first, places_[number].second); });
}

void UnitGradients::begin_pass() {
  const std::lock_guard lock(mutex_);
  counts_ = true;
  for (Counted& counted : counted_) {
    counted.missing = counted.wanted;
    std::fill(counted.came.begin(), counted.came.end(), false);
  }
}

std::vector<UnitGradients::Unfinished> UnitGradients::end_pass() {
  const std::lock_guard lock(mutex_);
  counts_ = false;
  std::vector<Unfinished> unfinished;
  for (size_t unit = 0; unit < counted_.size(); ++unit) {
    const Counted& counted = counted_[unit];
    if (counted.missing == 0) continue;
    unfinished.push_back({.unit = unit, .is_untouched = counted.missing == counted.wanted});
  }
  return unfinished;
}

bool UnitGradients::has_come(size_t unit, size_t index) const {
  const std::lock_guard lock(mutex_);
  return counted_[unit].came[index];
}

void UnitGradients::came(size_t unit, size_t index) {
  const std::lock_guard lock(mutex_);
  if (!counts_) return;
  const UnitParameters& parameters = units_.unit(unit);
  if (parameters.parameters[index].grad().requires_grad()) {
    throw UsageError({.what = "the gradient of '" + parameters.names[index] +
                              "' is to be differentiated once more (create_graph), but it leaves "
                              "autograd when it is cut into the shards of the ranks",
                      .where = "backward",
                      .hint = "take gradients that need gradients by torch::autograd::grad() of "
                              "other tensors than parameters"});
  }
  Counted& counted = counted_[unit];
  if (counted.came[index]) return;  // a pass inside of the pass
  counted.came[index] = true;
  if (--counted.missing == 0) on_complete_(unit);
}

}  // namespace accelerate::residency
