#include "optim/step_trace.h"

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <algorithm>

namespace accelerate {
namespace {

using torch::optim::Optimizer;

// Null where the optimizer keeps nothing for the parameter yet.
template <class State>
const State* kept_for(const Optimizer& optimizer, const at::Tensor& parameter) {
  const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
  return found == optimizer.state().end() ? nullptr
                                          : dynamic_cast<const State*>(found->second.get());
}

template <class State>
int64_t updates_of(const Optimizer& optimizer, const at::Tensor& parameter) {
  const State* state = kept_for<State>(optimizer, parameter);
  return state == nullptr ? 0 : state->step();
}

template <class Type>
bool is_a(const Optimizer& optimizer) {
  return dynamic_cast<const Type*>(&optimizer) != nullptr;
}

bool has_momentum(const torch::optim::OptimizerParamGroup& group) {
  return static_cast<const torch::optim::SGDOptions&>(group.options()).momentum() != 0;
}

// Of the group that has the parameter; searched for only where groups differ.
bool keeps_momentum(const torch::optim::SGD& sgd, const at::Tensor& parameter) {
  const auto& groups = sgd.param_groups();
  const auto with_momentum = std::ranges::count_if(groups, has_momentum);
  if (with_momentum == 0) return false;
  if (static_cast<size_t>(with_momentum) == groups.size()) return true;
  const auto is_same = [&](const at::Tensor& own) { return own.is_same(parameter); };
  const auto group = std::ranges::find_if(
      groups, [&](const auto& each) { return std::ranges::any_of(each.params(), is_same); });
  return group != groups.end() && has_momentum(*group);
}

}  // namespace

std::optional<StepTrace> StepTrace::of(const Optimizer& optimizer, const at::Tensor& parameter) {
  StepTrace trace;
  if (is_a<torch::optim::AdamW>(optimizer)) {
    trace.count_ = updates_of<torch::optim::AdamWParamState>(optimizer, parameter);
  } else if (is_a<torch::optim::Adam>(optimizer)) {
    trace.count_ = updates_of<torch::optim::AdamParamState>(optimizer, parameter);
  } else if (is_a<torch::optim::Adagrad>(optimizer)) {
    trace.count_ = updates_of<torch::optim::AdagradParamState>(optimizer, parameter);
  } else if (is_a<torch::optim::RMSprop>(optimizer)) {
    trace.count_ = updates_of<torch::optim::RMSpropParamState>(optimizer, parameter);
  } else if (is_a<torch::optim::LBFGS>(optimizer)) {
    // One state for all parameters, with the first of them.
    const at::Tensor& first = optimizer.param_groups().front().params().front();
    const auto* state = kept_for<torch::optim::LBFGSParamState>(optimizer, first);
    trace.count_ = state == nullptr ? 0 : state->n_iter();
  } else if (const auto* sgd = dynamic_cast<const torch::optim::SGD*>(&optimizer);
             sgd != nullptr && keeps_momentum(*sgd, parameter)) {
    const auto* state = kept_for<torch::optim::SGDParamState>(optimizer, parameter);
    if (state != nullptr && state->momentum_buffer().defined()) {
      trace.momentum_ = state->momentum_buffer().unsafeGetTensorImpl();
      trace.version_ = state->momentum_buffer()._version();
    }
  } else {
    return std::nullopt;
  }
  return trace;
}

}  // namespace accelerate
