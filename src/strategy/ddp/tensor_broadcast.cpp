#include "strategy/ddp/tensor_broadcast.h"

#include <ATen/core/grad_mode.h>

#include "compat/reducer.h"

namespace accelerate {

void broadcast_tensors(const c10::intrusive_ptr<c10d::ProcessGroup>& group,
                       const std::vector<at::Tensor>& tensors, int source) {
  // As much as is copied into one message.
  constexpr size_t kMessageBytes = 250UL * 1024 * 1024;
  std::vector<at::Tensor> targets;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.defined() && tensor.numel() > 0) targets.push_back(tensor.detach());
  }
  if (targets.empty()) return;
  const at::NoGradGuard no_grad;
  c10d::broadcast_coalesced(group, targets, kMessageBytes, source);
}

}  // namespace accelerate
