// Operations whose gradients come from kernels, which autograd does not see.
#pragma once

#include <ATen/core/grad_mode.h>
#include <torch/autograd.h>

#include <utility>

#include "compat/second_order.h"

namespace accelerate::ops {

// An autograd function whose backward pass is Derived::gradients(), run outside of autograd. Where
// autograd builds a graph of that pass, gradients of gradients throw: they would else be taken for
// zero. Derived::kName is what the error calls it.
template <class Derived>
struct FirstOrderFunction : torch::autograd::Function<Derived> {
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    if (!at::GradMode::is_enabled()) return Derived::gradients(context, gradients);
    torch::autograd::variable_list found;
    {
      const at::NoGradGuard no_grad;
      found = Derived::gradients(context, gradients);
    }
    return compat::refuse_second_order(Derived::kName, std::move(found));
  }
};

}  // namespace accelerate::ops
