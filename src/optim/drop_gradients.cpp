#include "optim/drop_gradients.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_zero.h>

#include "device/replay_actions.h"

namespace accelerate {

// Not torch's own zero_grad(): it detaches in place, which gradients inside buckets
// (DdpOptions::gradient_as_bucket_view) do not allow.
void drop_gradients(const std::vector<at::Tensor>& parameters, bool set_to_none) {
  const bool keeps_memory = device::KeptGradients::active();
  const auto* actions = device::ReplayActions::current();
  std::vector<at::Tensor> kept;
  for (const at::Tensor& parameter : parameters) {
    at::Tensor& gradient = parameter.mutable_grad();
    if (!gradient.defined()) continue;
    if (keeps_memory) {
      if (actions != nullptr && set_to_none && actions->untouched(gradient)) {
        gradient.reset();
      } else {
        kept.push_back(gradient);
      }
    } else if (set_to_none) {
      gradient.reset();
    } else {
      gradient = gradient.detach();
      gradient.zero_();
    }
  }
  const at::NoGradGuard no_grad;
  if (!kept.empty()) at::_foreach_zero_(kept);
}

}  // namespace accelerate
