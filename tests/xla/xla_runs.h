// What tests on XLA devices have in common.
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <string>
#include <vector>

#include "accelerate/accelerate.h"
#include "compat/xla/client.h"

namespace accelerate::test {

inline AcceleratorOptions on_device(const std::string& device) { return {.device = device}; }

// What was compiled, and left to the CPU, while it lives.
class CompileCount {
 public:
  CompileCount() { reset(); }
  void reset() { before_ = compat::xla_counts(); }
  int64_t compilations() const { return compat::xla_counts().compilations - before_.compilations; }
  // Names of operations that XLA left to the CPU.
  std::vector<std::string> on_the_host() const {
    std::vector<std::string> names;
    for (const auto& [name, count] : compat::xla_counts().on_the_host) {
      const auto before = before_.on_the_host.find(name);
      if (before == before_.on_the_host.end() || before->second != count) names.push_back(name);
    }
    return names;
  }

 private:
  compat::XlaCounts before_;
};

// The net, the data and the loop of README.md.
struct ReadmeNetImpl : torch::nn::Module {
  torch::nn::Linear hidden{16, 64}, out{64, 2};
  ReadmeNetImpl() { register_module("hidden", hidden), register_module("out", out); }
  torch::Tensor forward(const torch::Tensor& x) { return out(torch::relu(hidden(x))); }
};
TORCH_MODULE(ReadmeNet);

inline TensorDataset readme_data(int64_t samples) {
  auto points = torch::randn({samples, 16});
  auto labels = points.sum(1).gt(0).to(torch::kLong);
  return {points, labels};
}

// Of one training; numbers of two devices differ by what rounding does.
inline void expect_same_losses(const std::vector<double>& one, const std::vector<double>& other,
                               double tolerance) {
  ASSERT_EQ(one.size(), other.size());
  for (size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(one[i], other[i], tolerance) << "at " << i;
}

}  // namespace accelerate::test
