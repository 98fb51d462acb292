#include "compat/second_order.h"

#include <torch/csrc/autograd/functions/basic_ops.h>

#include <memory>
#include <string>
#include <utility>

namespace accelerate::compat {

std::vector<at::Tensor> refuse_second_order(const char* operation,
                                            std::vector<at::Tensor> gradients) {
  for (at::Tensor& gradient : gradients) {
    if (gradient.defined()) gradient = gradient.detach().requires_grad_();
  }
  const auto refuse = std::make_shared<torch::autograd::DelayedError>(
      std::string(operation) +
          " has no gradients of gradients: use operators of libtorch where they are needed",
      static_cast<int64_t>(gradients.size()));
  return (*refuse)(std::move(gradients));
}

}  // namespace accelerate::compat
