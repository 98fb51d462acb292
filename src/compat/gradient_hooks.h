// Tells when backward passes are done with the gradient of a parameter.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace torch::autograd {
struct Node;
}

namespace accelerate::compat {

// Calls back with the number of a parameter whenever a backward pass has added all that it has to
// its .grad(), by the thread of that pass. Also where operations have added by themselves and
// handed nothing on.
class GradientHooks {
 public:
  GradientHooks(const std::vector<at::Tensor>& parameters, std::function<void(size_t)> call);
  ~GradientHooks();
  GradientHooks(const GradientHooks&) = delete;
  GradientHooks& operator=(const GradientHooks&) = delete;

 private:
  std::vector<std::shared_ptr<torch::autograd::Node>> accumulators_;
  std::vector<std::uintptr_t> keys_;
};

}  // namespace accelerate::compat
