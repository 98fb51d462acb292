#include "tensor/gradient_values.h"

#include <algorithm>
#include <unordered_set>

namespace accelerate {
namespace {

// Whether a tensor stands twice. Sorting addresses is much faster than filling a set.
bool repeats(const std::vector<at::Tensor>& tensors) {
  std::vector<const void*> addresses;
  addresses.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) addresses.push_back(tensor.unsafeGetTensorImpl());
  std::ranges::sort(addresses);
  return std::ranges::adjacent_find(addresses) != addresses.end();
}

void drop_repeated(std::vector<at::Tensor>& tensors) {
  std::unordered_set<const void*> seen;
  std::erase_if(tensors, [&](const at::Tensor& tensor) {
    return !seen.insert(tensor.unsafeGetTensorImpl()).second;
  });
}

}  // namespace

std::vector<at::Tensor> distinct_gradients(at::TensorList parameters) {
  std::vector<at::Tensor> gradients;
  gradients.reserve(parameters.size());
  bool sparse = false;
  for (const at::Tensor& parameter : parameters) {
    at::Tensor& gradient = parameter.mutable_grad();
    if (!gradient.defined() || gradient.numel() == 0) continue;
    if (gradient.is_sparse()) {
      sparse = true;
      if (!gradient.is_coalesced()) gradient = gradient.coalesce();
    }
    gradients.push_back(gradient);
  }
  if (repeats(gradients)) drop_repeated(gradients);
  if (!sparse) return gradients;
  for (at::Tensor& gradient : gradients) {
    if (gradient.is_sparse()) gradient = gradient._values();
  }
  std::erase_if(gradients, [](const at::Tensor& values) { return values.numel() == 0; });
  return gradients;
}

at::Tensor brought_to(const at::TensorOptions& place, const at::Tensor& tensor) {
  return tensor.to(place, /*non_blocking=*/!place.device().is_cpu());
}

}  // namespace accelerate
