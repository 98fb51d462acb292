#include "core/window_gradients.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <iterator>

#include "accelerate/errors.h"
#include "device/replay_actions.h"

namespace accelerate {
namespace {

const void* identity(const at::Tensor& tensor) { return tensor.unsafeGetTensorImpl(); }

bool is_zero(const at::Tensor& gradient) {
  const at::Tensor values = gradient.is_sparse() ? gradient._values() : gradient;
  return values.numel() == 0 || !values.detach().any().item<bool>();
}

}  // namespace

WindowGradients::Parameters WindowGradients::all_parameters() const {
  Parameters all;
  std::unordered_set<const void*> seen;
  for (const Parameters& parameters : owners_()) {
    for (const at::Tensor& parameter : parameters) {
      if (seen.insert(identity(parameter)).second) all.push_back(parameter);
    }
  }
  return all;
}

void WindowGradients::keep(const at::Tensor& parameter) {
  const at::Tensor& gradient = parameter.grad();
  if (!gradient.defined()) return;
  kept_[identity(parameter)] = {
      .parameter = parameter, .gradient = gradient, .version = gradient._version()};
}

void WindowGradients::restore() {
  std::unordered_set<const void*> changed;
  for (auto& [parameter, kept] : kept_) {
    at::Tensor& present = kept.parameter.mutable_grad();
    const bool same = !present.defined() || present.is_same(kept.gradient);
    if (!same || kept.gradient._version() != kept.version) changed.insert(parameter);
    if (!present.defined()) present = kept.gradient;
  }
  if (!changed.empty()) require_not_zeroed(changed);
}

void WindowGradients::require_not_zeroed(const std::unordered_set<const void*>& changed) const {
  std::unordered_map<const void*, bool> known;
  const auto zeroed = [&](const at::Tensor& parameter) {
    const void* key = identity(parameter);
    if (!changed.contains(key)) return false;
    const auto [found, is_new] = known.emplace(key, false);
    if (is_new) found->second = is_zero(parameter.grad());
    return found->second;
  };
  for (const Parameters& parameters : owners_()) {
    Parameters held;
    std::ranges::copy_if(parameters, std::back_inserter(held), [this](const at::Tensor& parameter) {
      return kept_.contains(identity(parameter));
    });
    if (held.empty() || !std::ranges::all_of(held, zeroed)) continue;
    throw UsageError(
        {.what = "the gradients of the earlier micro-batches of this window were set to "
                 "zero in place",
         .where = "accumulate",
         .hint = "call zero_grad() of what prepare() returned, which leaves them alone "
                 "until a step has used them, or keep set_to_none = true"});
  }
}

void WindowGradients::refresh() {
  for (auto& [parameter, kept] : kept_) {
    const at::Tensor& present = kept.parameter.grad();
    if (!present.defined()) continue;
    kept.gradient = present;
    kept.version = present._version();
  }
}

void WindowGradients::before_pass() {
  seen_.clear();
  for (const at::Tensor& parameter : all_parameters()) {
    const at::Tensor& gradient = parameter.grad();
    seen_.push_back({.parameter = parameter,
                     .gradient = gradient.defined() ? identity(gradient) : nullptr,
                     .version = gradient.defined() ? gradient._version() : 0});
  }
}

void WindowGradients::after_pass(bool ends) {
  Parameters reached;
  for (const Seen& seen : seen_) {
    const at::Tensor& gradient = seen.parameter.grad();
    if (!gradient.defined()) continue;
    if (identity(gradient) == seen.gradient && gradient._version() == seen.version) continue;
    reached.push_back(seen.parameter);
  }
  seen_.clear();
  note_pass(reached, ends);
  // A recorded pass is made by the replays.
  if (auto* actions = device::ReplayActions::current()) {
    actions->add_after([this, reached, ends] { note_pass(reached, ends); });
  }
}

void WindowGradients::note_pass(const Parameters& reached, bool ends) {
  bool adds_to_nothing = false;
  for (const at::Tensor& parameter : reached) {
    const void* key = identity(parameter);
    adds_to_nothing = adds_to_nothing || thrown_away_.contains(key);
    if (!ends) {
      keep(parameter);
    } else if (kept_.erase(key) != 0) {
      complete_[key] = true;
    } else {
      complete_.emplace(key, false);
    }
  }
  refresh();
  if (!adds_to_nothing) return;
  throw UsageError({.what =
                        "a loss reaches parameters whose gradients zero_grad() has dropped in this "
                        "micro-batch, with those of the earlier micro-batches of its window",
                    .where = "backward",
                    .hint = "an earlier loss has reached them too: detach() what it should not "
                            "reach, or run backward(loss, {.only = model})"});
}

bool WindowGradients::holds(const Parameters& parameters) const {
  bool some = false;
  for (const at::Tensor& parameter : parameters) {
    if (complete_.contains(identity(parameter))) return false;
    some = some || kept_.contains(identity(parameter));
  }
  return some;
}

void WindowGradients::dropped(const Parameters& parameters) {
  for (const at::Tensor& parameter : parameters) {
    const void* key = identity(parameter);
    kept_.erase(key);
    const auto found = complete_.find(key);
    if (found == complete_.end()) continue;
    if (found->second) thrown_away_.insert(key);
    complete_.erase(found);
  }
}

void WindowGradients::used(const Parameters& parameters) {
  for (const at::Tensor& parameter : parameters) {
    const void* key = identity(parameter);
    kept_.erase(key);
    complete_.erase(key);
  }
}

void WindowGradients::adopt_present() {
  begin_window();
  for (const at::Tensor& parameter : all_parameters()) keep(parameter);
}

void WindowGradients::begin_window() {
  kept_.clear();
  complete_.clear();
  thrown_away_.clear();
}

}  // namespace accelerate
