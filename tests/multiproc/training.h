// Models, data and loops that the tests of training share.
#pragma once

#include <accelerate/accelerate.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "support/rank_device.h"
#include "support/ranks.h"

namespace accelerate::test {

// Rows of one rank's batch in the tests of training.
inline constexpr int64_t kRows = 4;

// Any network from one tensor to one tensor.
struct Net : torch::nn::Module {
  virtual at::Tensor forward(at::Tensor input) = 0;
};

struct Mlp : Net {
  explicit Mlp(int64_t hidden = 8)
      : first(register_module("first", torch::nn::Linear(6, hidden))),
        second(register_module("second", torch::nn::Linear(hidden, 3))) {
    to(test_device());
  }
  at::Tensor forward(at::Tensor input) override { return second(torch::tanh(first(input))); }

  torch::nn::Linear first, second;
};

// Three branches, of which a call uses the ones it is told to.
struct Branches : torch::nn::Module {
  Branches()
      : a(register_module("a", torch::nn::Linear(6, 3))),
        b(register_module("b", torch::nn::Linear(6, 3))),
        c(register_module("c", torch::nn::Linear(6, 3))) {
    to(test_device());
  }
  at::Tensor forward(const at::Tensor& input, const std::string& used) {
    at::Tensor output = torch::zeros({input.size(0), 3}, input.device());
    if (used.find('a') != std::string::npos) output = output + a(input);
    if (used.find('b') != std::string::npos) output = output + b(input);
    if (used.find('c') != std::string::npos) output = output + c(input);
    return output;
  }

  torch::nn::Linear a, b, c;
};

// Options that no test should run into by waiting. On the CPU, unless all tests are to run on the
// GPU: see test_device().
inline AcceleratorOptions on_cpu(DdpOptions ddp = {}) {
  return {.cpu = !tests_on_gpu(),
          .ddp = ddp,
          .process_group = {.timeout = kUnreachedTimeout,
                            .rendezvous_timeout = kUnreachedTimeout,
                            .cuda_backend = test_cuda_backend()}};
}

// A net that is trained without an accelerator, where those with one are.
template <class Module>
Module on_test_device(Module module) {
  module->to(test_device());
  return module;
}

inline at::Tensor ones(at::IntArrayRef sizes) { return torch::ones(sizes, test_device()); }

// Over NCCL calls return when their exchanges are queued. That these have failed is told by the
// first call after a program has waited for the device, as it does when it reads a loss.
inline void wait_for_exchanges() {
  if (wanted_test_device() == TestDevice::kGpuOverNccl) torch::cuda::synchronize();
}

// Inputs and targets of `total_rows` rows for one step, the same on whichever rank asks.
struct StepData {
  at::Tensor input, target;
};
inline StepData host_data_of_step(int step, int64_t total_rows, at::IntArrayRef shape = {6}) {
  auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(1000 + step));
  std::vector<int64_t> sizes{total_rows};
  sizes.insert(sizes.end(), shape.begin(), shape.end());
  return {torch::randn(sizes, generator), torch::randn({total_rows, 3}, generator)};
}
inline StepData data_of_step(int step, int64_t total_rows, at::IntArrayRef shape = {6}) {
  const StepData data = host_data_of_step(step, total_rows, shape);
  return {data.input.to(test_device()), data.target.to(test_device())};
}

// The rows of `whole` that rank `rank` trains on.
inline at::Tensor rows_of(const at::Tensor& whole, int rank, int64_t rows = kRows) {
  return whole.narrow(0, rank * rows, rows);
}

inline at::Tensor loss_of(const at::Tensor& output, const at::Tensor& target) {
  return torch::mse_loss(output, target);
}

// All values of the tensors one after the other, an undefined one as nothing.
inline std::vector<double> flat(const std::vector<at::Tensor>& tensors) {
  std::vector<double> values;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined()) continue;
    const at::Tensor dense = tensor.is_sparse() ? tensor.to_dense() : tensor;
    const at::Tensor doubles = dense.detach().to(at::kCPU, at::kDouble).contiguous();
    values.insert(values.end(), doubles.data_ptr<double>(),
                  doubles.data_ptr<double>() + doubles.numel());
  }
  return values;
}

inline std::vector<at::Tensor> gradients(const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> result;
  for (const at::Tensor& parameter : parameters) result.push_back(parameter.grad());
  return result;
}

// Within 1e-5 of each other, relative to one where values are small.
inline testing::AssertionResult near(const std::vector<double>& actual,
                                     const std::vector<double>& expected, double tolerance = 1e-5) {
  if (actual.size() != expected.size()) {
    return testing::AssertionFailure() << actual.size() << " values, expected " << expected.size();
  }
  for (size_t i = 0; i < actual.size(); ++i) {
    if (std::abs(actual[i] - expected[i]) <= tolerance * std::max(1.0, std::abs(expected[i]))) {
      continue;  // NaN does not come here
    }
    return testing::AssertionFailure()
           << "value " << i << " is " << actual[i] << ", expected " << expected[i];
  }
  return testing::AssertionSuccess();
}

// The text of the UsageError that `action` throws; "" and a failure if it throws another or none.
template <typename Action>
std::string usage_error(Action action) {
  try {
    action();
  } catch (const UsageError& error) {
    return error.what();
  }
  ADD_FAILURE() << "expected a UsageError";
  return {};
}

// A model whose buffer adds up what it has seen, and so says whose it is.
struct Counting : torch::nn::Module {
  Counting()
      : linear(register_module("linear", torch::nn::Linear(6, 1))),
        seen(register_buffer("seen", torch::zeros({1}))) {}
  at::Tensor forward(const at::Tensor& input) {
    if (is_training()) seen.add_(input.detach().mean());
    return linear(input);
  }
  torch::nn::Linear linear;
  at::Tensor seen;
};

}  // namespace accelerate::test
