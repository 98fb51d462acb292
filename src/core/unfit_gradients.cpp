#include "core/unfit_gradients.h"

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <utility>

#include "accelerate/errors.h"
#include "device/replay_actions.h"

namespace accelerate {
namespace {

std::optional<c10::Stream> stream_of_passes(const std::vector<at::Tensor>& parameters) {
  if (parameters.empty() || parameters[0].device().is_cpu()) return std::nullopt;
  const c10::Device device = parameters[0].device();
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

bool is_dropped(const at::Tensor& gradient) {
  if (!gradient.defined()) return true;
  // A recording cannot look.
  if (gradient.layout() != at::kStrided || device::ReplayActions::current() != nullptr) {
    return false;
  }
  return !gradient.ne(0).any().item<bool>();
}

}  // namespace

void UnfitGradients::watch(std::vector<at::Tensor> parameters) {
  hooks_.reset();
  parameters_ = std::move(parameters);
  if (holds_hooks_ && !parameters_.empty()) make_hooks();
}

void UnfitGradients::make_hooks() {
  made_on_ = stream_of_passes(parameters_);
  made_for_.clear();
  for (const at::Tensor& each : parameters_) {
    made_for_.push_back({.sizes = each.sizes().vec(),
                         .dtype = each.scalar_type(),
                         .device = each.device(),
                         .requires_grad = each.requires_grad()});
  }
  hooks_ =
      std::make_unique<compat::GradientHooks>(parameters_, [this](size_t index) { came(index); });
}

bool UnfitGradients::hooks_fit() const {
  if (made_on_ != stream_of_passes(parameters_)) return false;
  return std::ranges::equal(parameters_, made_for_, [](const at::Tensor& now, const Kind& before) {
    return now.sizes() == before.sizes && now.scalar_type() == before.dtype &&
           now.device() == before.device && now.requires_grad() == before.requires_grad;
  });
}

void UnfitGradients::hold_hooks(bool held) {
  const bool fit = !held || hooks_fit();
  if (std::exchange(holds_hooks_, held) == held && fit) return;
  hooks_.reset();
  if (held && !parameters_.empty()) make_hooks();
}

void UnfitGradients::Pass::count(int change) {
  if (gradients_ == nullptr) return;
  const std::lock_guard lock(gradients_->mutex_);
  gradients_->passes_ += change;
}

void UnfitGradients::came(size_t index) {
  const std::lock_guard lock(mutex_);
  if (passes_ > 0) return;
  const at::Tensor& parameter = parameters_[index];
  unfit_.try_emplace(parameter.unsafeGetTensorImpl(),
                     Unfit{.parameter = parameter, .cause = Cause::kBypassed});
}

void UnfitGradients::add_mixed(const std::vector<at::Tensor>& parameters) {
  const std::lock_guard lock(mutex_);
  for (const at::Tensor& parameter : parameters) {
    unfit_.insert_or_assign(parameter.unsafeGetTensorImpl(),
                            Unfit{.parameter = parameter, .cause = Cause::kMixed});
  }
}

void UnfitGradients::forget(const std::vector<at::Tensor>& parameters) {
  const std::lock_guard lock(mutex_);
  if (unfit_.empty()) return;
  for (const at::Tensor& parameter : parameters) unfit_.erase(parameter.unsafeGetTensorImpl());
}

void UnfitGradients::forget_all() {
  const std::lock_guard lock(mutex_);
  unfit_.clear();
}

void UnfitGradients::forget_dropped() {
  const at::NoGradGuard no_grad;
  const std::lock_guard lock(mutex_);
  std::erase_if(unfit_, [](const auto& item) { return is_dropped(item.second.parameter.grad()); });
}

void UnfitGradients::require_none(const std::vector<at::Tensor>& parameters, const char* where) {
  forget_dropped();
  const std::lock_guard lock(mutex_);
  for (const at::Tensor& parameter : parameters) {
    const auto found = unfit_.find(parameter.unsafeGetTensorImpl());
    if (found == unfit_.end()) continue;
    if (found->second.cause == Cause::kMixed) {
      throw UsageError({.what = "a loss was added to gradients that were already unscaled: they "
                                "are of two scales now",
                        .where = where,
                        .hint = "call zero_grad() and begin this step again"});
    }
    throw UsageError({.what = "a backward pass bypassed accelerator.backward(loss): its gradients "
                              "are not multiplied by the scale of the loss, by which a step under "
                              "fp16 divides them",
                      .where = where,
                      .hint = "call accelerator.backward(loss) instead of loss.backward(), for "
                              "every loss; zero_grad() drops these gradients"});
  }
}

}  // namespace accelerate
