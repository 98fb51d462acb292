#include "compat/gradient_hooks.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>

namespace accelerate::compat {

GradientHooks::GradientHooks(const std::vector<at::Tensor>& parameters,
                             std::function<void(size_t)> call) {
  using torch::autograd::variable_list;
  const auto shared = std::make_shared<std::function<void(size_t)>>(std::move(call));
  for (size_t index = 0; index < parameters.size(); ++index) {
    if (!parameters[index].requires_grad()) continue;  // no pass reaches it
    auto tell = [shared, index](const variable_list& outputs, const variable_list&) {
      (*shared)(index);
      return outputs;
    };
    accumulators_.push_back(torch::autograd::impl::grad_accumulator(parameters[index]));
    keys_.push_back(accumulators_.back()->add_post_hook(
        std::make_unique<torch::autograd::utils::LambdaPostHook>(std::move(tell))));
  }
}

GradientHooks::~GradientHooks() {
  for (size_t index = 0; index < accumulators_.size(); ++index) {
    accumulators_[index]->del_post_hook(keys_[index]);
  }
}

}  // namespace accelerate::compat
