// A reducer with a communication hook, whose gradients the test sets.
#pragma once

#include <torch/torch.h>

#include "comm/groups/process_group.h"
#include "multiproc/group.h"
#include "strategy/ddp/comm_hooks.h"
#include "strategy/ddp/power_sgd.h"

namespace accelerate::test {

// Parameters whose gradients the test sets, on a reducer with a hook.
class Replica {
 public:
  Replica(Communicator& communicator, const std::vector<std::vector<int64_t>>& shapes,
          const CommHookOptions& options, const compat::ReducerOptions& reducer = {}) {
    std::vector<std::string> names;
    for (const auto& shape : shapes) {
      parameters_.push_back(torch::zeros(shape, torch::requires_grad().device(test_device())));
      names.push_back("parameter " + std::to_string(names.size()));
    }
    const auto group = comm::process_group_of(communicator);
    made_ = compat::make_reducer(parameters_, names, std::vector<bool>(shapes.size(), false), group,
                                 reducer);
    hook_ = register_comm_hook(*made_.reducer, group, options);
  }

  // What PowerSGD keeps.
  PowerSgdHook& hook() { return *hook_; }

  // A backward pass with these gradients on this rank; returns what the hook made of them, in host
  // memory.
  std::vector<at::Tensor> reduce(const std::vector<at::Tensor>& gradients) {
    at::Tensor loss = torch::zeros({}, test_device());
    for (size_t i = 0; i < parameters_.size(); ++i) {
      parameters_[i].mutable_grad().reset();
      loss = loss + (parameters_[i] * gradients[i].to(test_device())).sum();
    }
    made_.reducer->arm({});
    loss.backward();
    std::vector<at::Tensor> results;
    for (const at::Tensor& parameter : parameters_)
      results.push_back(parameter.grad().cpu().clone());
    return results;
  }
  at::Tensor reduce_one(const at::Tensor& gradient) { return reduce({gradient})[0]; }

  // A pass that reaches the last parameter alone: its bucket is under way when this returns, and
  // the pass never ends.
  void begin_pass() {
    made_.reducer->arm({});
    parameters_.back().sum().backward();
  }

 private:
  std::vector<at::Tensor> parameters_;
  compat::ReducerAndLogger made_;
  PowerSgdHook* hook_ = nullptr;
};

// The same on every rank that asks; another for each seed.
inline at::Tensor noise(uint64_t seed, const std::vector<int64_t>& shape) {
  return torch::randn(shape, at::detail::createCPUGenerator(seed));
}

inline double distance(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).norm().item<double>();
}

// From the third pass on, as early as possible.
inline CommHookOptions power_sgd(int64_t rank, PowerSgdOptions options = {}) {
  options.matrix_approximation_rank = rank;
  options.start_power_sgd_iter = 2;
  return {.hook = CommHook::kPowerSgd, .power_sgd = options};
}

// The passes before PowerSGD begins.
inline void warm_up(Replica& replica, const std::vector<at::Tensor>& gradients) {
  for (int i = 0; i < 2; ++i) replica.reduce(gradients);
}

}  // namespace accelerate::test
