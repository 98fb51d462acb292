// Lets an update look whether gradients have overflowed.
#pragma once

#include <ATen/core/Tensor.h>

namespace accelerate {

// Puts `found_inf` where an update looks for it, as long as this lives.
class OverflowWatch {
 public:
  OverflowWatch(at::Tensor& place, const at::Tensor& found_inf) : place_(place) {
    place_ = found_inf;
  }
  ~OverflowWatch() { place_.reset(); }
  OverflowWatch(const OverflowWatch&) = delete;
  OverflowWatch& operator=(const OverflowWatch&) = delete;

 private:
  at::Tensor& place_;
};

}  // namespace accelerate
