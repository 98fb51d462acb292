// A model under a strategy: called like the module it holds.
#pragma once

#include <c10/util/Exception.h>
#include <torch/nn/module.h>
#include <torch/serialize/archive.h>

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "accelerate/autocast.h"
#include "accelerate/detail/nondeterminism.h"
#include "accelerate/nested.h"
#include "accelerate/strategy.h"

namespace accelerate {

namespace detail {

// The argument of what PreparedModel::call() runs: becomes the module, a TORCH_MODULE holder of it,
// or a shared pointer to it, whichever the parameter is.
template <class Module>
class ModuleArgument {
 public:
  explicit ModuleArgument(std::shared_ptr<Module> module) : module_(std::move(module)) {}

  Module* operator->() const { return module_.get(); }
  Module& operator*() const { return *module_; }

  template <class T>
  requires std::is_base_of_v<std::remove_const_t<T>, Module>
  operator T&() {  // NOLINT(google-explicit-constructor)
    return *module_;
  }
  template <class T>
  requires(!std::is_base_of_v<std::remove_const_t<T>, Module> &&
           std::is_constructible_v<T, std::shared_ptr<Module>>)
  operator T&() {  // NOLINT(google-explicit-constructor)
    auto holder = std::make_shared<std::remove_const_t<T>>(module_);
    holder_ = holder;
    return *holder;
  }

 private:
  std::shared_ptr<Module> module_;
  std::shared_ptr<void> holder_;
};

template <class Function, class Module>
concept TakesModule =
    std::is_invocable_v<Function, std::add_lvalue_reference_t<ModuleArgument<Module>>>;

// Drops the gradients of these parameters, unless an open window still needs them.
using ZeroGrad = std::function<void(const std::vector<at::Tensor>& parameters, bool set_to_none)>;

}  // namespace detail

// What Accelerator::prepare makes of a model. `model(x)` and `model->forward(x)` are the same call:
// the module's own forward, with its own arguments and result, through the strategy. Other members
// of the module run through call(); Accelerator::unwrap_model gives the module itself, whose
// members then run past strategy and mixed precision. torch::save, torch::load and std::ostream
// take a prepared model as they take the module.
//
// A handle: copies share the module and its strategy, and a moved-from one stays valid. One thread
// at a time.
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

  // Runs the module, in mixed precision if that was asked for; its results are converted to float32
  // unless PrecisionOptions say otherwise. May exchange buffers with the other ranks, see
  // DdpOptions::broadcast_buffers.
  template <class... Args>
  requires requires(Module& module, Args&&... args) { module.forward(std::forward<Args>(args)...); }
  decltype(auto) forward(Args&&... args) const {
    return run([&]() -> decltype(auto) { return module_->forward(std::forward<Args>(args)...); });
  }
  template <class... Args>
  requires requires(Module& module, Args&&... args) { module.forward(std::forward<Args>(args)...); }
  decltype(auto) operator()(Args&&... args) const { return forward(std::forward<Args>(args)...); }
  // Runs `function` on the module as forward() runs the module: for losses made of other members,
  // such as the entropy of a policy. Its parameter is the module, its TORCH_MODULE holder or a
  // shared pointer to it:
  //   const auto entropy = model.call([&](Net& net) { return net->entropy(states); });
  // What it returns is converted as the result of forward() is. A holder that it takes lives for
  // the call: return no reference to it.
  template <detail::TakesModule<Module> Function>
  decltype(auto) call(Function&& function) const {
    return run([&]() -> decltype(auto) {
      detail::ModuleArgument<Module> argument(module_);
      return std::invoke(std::forward<Function>(function), argument);
    });
  }
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
  // Like PreparedOptimizer::zero_grad(): keeps gradients that a window of accumulation still needs.
  void zero_grad(bool set_to_none = true) const {
    if (!zero_grad_) return module_->zero_grad(set_to_none);
    zero_grad_(module_->parameters(), set_to_none);
  }

  const std::shared_ptr<Module>& module() const { return module_; }
  const std::shared_ptr<ModelStrategy>& strategy() const { return strategy_; }

  friend std::ostream& operator<<(std::ostream& out, const PreparedModel& model) {
    return out << static_cast<const torch::nn::Module&>(*model.module_);
  }
  // What torch::save and torch::load write and read: parameters and buffers. On several ranks save
  // on one of them; load on all. Throw UsageError where the strategy keeps the model in pieces.
  friend torch::serialize::OutputArchive& operator<<(torch::serialize::OutputArchive& archive,
                                                     const PreparedModel& model) {
    model.strategy_->require_whole("torch::save");
    model.module_->save(archive);
    return archive;
  }
  friend torch::serialize::InputArchive& operator>>(torch::serialize::InputArchive& archive,
                                                    PreparedModel& model) {
    model.strategy_->require_whole("torch::load");
    model.module_->load(archive);
    return archive;
  }

 private:
  // `body` under strategy and precision.
  template <class Body>
  decltype(auto) run(Body body) const {
    using Result = std::invoke_result_t<Body>;
    const struct EndOfForward {
      ~EndOfForward() { strategy.end_forward(); }
      ModelStrategy& strategy;
    } end_of_forward{*strategy_};
    strategy_->begin_forward();
    const auto run_in_precision = [&]() -> Result {
      const Autocast guard = precision_.autocast();
      try {
        return body();
      } catch (const c10::Error& error) {
        detail::refuse_nondeterminism(error, "forward");
        throw;
      }
    };
    if constexpr (!std::is_reference_v<Result> && Nested<Result>) {
      Result result = run_in_precision();
      if (precision_.converts_outputs()) {
        for_each_tensor(result, [&](at::Tensor& tensor) {
          if (tensor.defined()) tensor = precision_.output(tensor);
        });
      }
      return result;
    } else {
      return run_in_precision();
    }
  }

  std::shared_ptr<Module> module_;
  std::shared_ptr<ModelStrategy> strategy_;
  PrecisionPolicy precision_;
  detail::ZeroGrad zero_grad_;
};

}  // namespace accelerate
