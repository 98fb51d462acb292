// A model under a strategy: called like the module it holds.
#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "accelerate/strategy.h"

namespace accelerate {

// What Accelerator::prepare makes of a model. `model(x)` and `model->forward(x)` are the same call:
// the module's own forward, with its own arguments and result, through the strategy. Members of
// the module that would go past the strategy are not reachable from here: see
// Accelerator::unwrap_model.
//
// A handle: copies share the module and its strategy. One thread at a time.
template <class Module>
class PreparedModel {
 public:
  using ModuleType = Module;

  PreparedModel(std::shared_ptr<Module> module, std::shared_ptr<ModelStrategy> strategy)
      : module_(std::move(module)), strategy_(std::move(strategy)) {}

  // Runs the module. May exchange buffers with the other ranks, see DdpOptions::broadcast_buffers.
  template <class... Args>
  requires requires(Module& module, Args&&... args) { module.forward(std::forward<Args>(args)...); }
  decltype(auto) forward(Args&&... args) const {
    strategy_->before_forward();
    return module_->forward(std::forward<Args>(args)...);
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
  void zero_grad(bool set_to_none = true) const { module_->zero_grad(set_to_none); }

  const std::shared_ptr<Module>& module() const { return module_; }
  const std::shared_ptr<ModelStrategy>& strategy() const { return strategy_; }

 private:
  std::shared_ptr<Module> module_;
  std::shared_ptr<ModelStrategy> strategy_;
};

}  // namespace accelerate
