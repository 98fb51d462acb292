// A model under a strategy: called like the module it holds.
#pragma once

#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "accelerate/autocast.h"
#include "accelerate/nested.h"
#include "accelerate/strategy.h"

namespace accelerate {

namespace detail {
// Throws the gradients of these parameters away, unless an open window still needs them.
using ZeroGrad = std::function<void(const std::vector<at::Tensor>& parameters, bool set_to_none)>;
}  // namespace detail

// What Accelerator::prepare makes of a model. `model(x)` and `model->forward(x)` are the same call:
// the module's own forward, with its own arguments and result, through the strategy. Members of
// the module that would go past the strategy are not reachable from here: see
// Accelerator::unwrap_model.
//
// A handle: copies share the module and its strategy, and one that was moved from goes on. One
// thread at a time.
template <class Module>
class PreparedModel {
 public:
  using ModuleType = Module;

  PreparedModel(std::shared_ptr<Module> module, std::shared_ptr<ModelStrategy> strategy,
                PrecisionPolicy precision = {}, detail::ZeroGrad zero_grad = {})
      : module_(std::move(module)),
        strategy_(std::move(strategy)),
        precision_(precision),
        zero_grad_(std::move(zero_grad)) {}
  PreparedModel(const PreparedModel&) = default;
  PreparedModel& operator=(const PreparedModel&) = default;

  // Runs the module, in mixed precision where that was asked for; what it returns comes in float32
  // unless PrecisionOptions say otherwise. May exchange buffers with the other ranks, see
  // DdpOptions::broadcast_buffers.
  template <class... Args>
  requires requires(Module& module, Args&&... args) { module.forward(std::forward<Args>(args)...); }
  decltype(auto) forward(Args&&... args) const {
    using Result = decltype(module_->forward(std::forward<Args>(args)...));
    strategy_->before_forward();
    const auto run = [&]() -> Result {
      const Autocast guard = precision_.autocast();
      return module_->forward(std::forward<Args>(args)...);
    };
    if constexpr (!std::is_reference_v<Result> && Nested<Result>) {
      Result result = run();
      if (precision_.converts_outputs()) {
        for_each_tensor(result, [&](at::Tensor& tensor) {
          if (tensor.defined()) tensor = precision_.output(tensor);
        });
      }
      return result;
    } else {
      return run();
    }
  }
  template <class... Args>
  requires requires(Module& module, Args&&... args) { module.forward(std::forward<Args>(args)...); }
  decltype(auto) operator()(Args&&... args) const { return forward(std::forward<Args>(args)...); }
  PreparedModel* operator->() { return this; }
  const PreparedModel* operator->() const { return this; }

  // The module's own parameters, buffers and modes.
  std::vector<at::Tensor> parameters(bool recurse = true) const {
    return module_->parameters(recurse);
  }
  torch::OrderedDict<std::string, at::Tensor> named_parameters(bool recurse = true) const {
    return module_->named_parameters(recurse);
  }
  std::vector<at::Tensor> buffers(bool recurse = true) const { return module_->buffers(recurse); }
  torch::OrderedDict<std::string, at::Tensor> named_buffers(bool recurse = true) const {
    return module_->named_buffers(recurse);
  }
  void train(bool on = true) const { module_->train(on); }
  void eval() const { module_->eval(); }
  bool is_training() const { return module_->is_training(); }
  // Like PreparedOptimizer::zero_grad(): leaves gradients alone that a window of accumulation still
  // needs.
  void zero_grad(bool set_to_none = true) const {
    if (!zero_grad_) return module_->zero_grad(set_to_none);
    zero_grad_(module_->parameters(), set_to_none);
  }

  const std::shared_ptr<Module>& module() const { return module_; }
  const std::shared_ptr<ModelStrategy>& strategy() const { return strategy_; }

 private:
  std::shared_ptr<Module> module_;
  std::shared_ptr<ModelStrategy> strategy_;
  PrecisionPolicy precision_;
  detail::ZeroGrad zero_grad_;
};

}  // namespace accelerate
