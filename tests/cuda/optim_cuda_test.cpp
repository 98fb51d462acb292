// Updates and clipping on a GPU. Skipped, visibly, where there is none.
#include <accelerate/accelerate.h>
#include <accelerate/clip.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include "cuda/lone_gpu.h"
#include "support/ranks.h"

namespace accelerate {
namespace {

using test::Rank;
using test::Ranks;
using Parameters = std::vector<at::Tensor>;

struct CudaOptim : Ranks {};

Parameters parameters_on(const std::vector<c10::Device>& devices) {
  torch::manual_seed(1);
  Parameters parameters;
  for (const c10::Device device : devices) {
    for (const int64_t size : {5, 70'000}) {
      parameters.push_back(torch::randn({size}).to(device).requires_grad_());
    }
  }
  return parameters;
}

void set_gradients(Parameters& parameters, int step) {
  torch::manual_seed(100 + step);
  for (at::Tensor& parameter : parameters) {
    parameter.mutable_grad() = torch::randn(parameter.sizes()).to(parameter.device());
  }
}

template <class Optimizer, class Options>
void expect_updates_of_torch(const Options& options, const std::vector<c10::Device>& devices) {
  Parameters own = parameters_on(devices);
  Parameters plain = parameters_on(devices);
  PreparedOptimizer prepared(std::make_shared<Optimizer>(own, options));
  Optimizer optimizer(plain, options);
  for (int step = 0; step < 4; ++step) {
    set_gradients(own, step);
    if (step == 1) own[1].mutable_grad().reset();
    prepared.step();
    set_gradients(plain, step);
    if (step == 1) plain[1].mutable_grad().reset();
    optimizer.step();
  }
  for (size_t i = 0; i < own.size(); ++i) {
    EXPECT_TRUE(torch::allclose(own[i], plain[i], 1e-5, 1e-6)) << i;
  }
}

TEST_F(CudaOptim, PreparedOptimizersMakeTheUpdatesOfTorch) {
  run(1, [](const Rank&) {
    REQUIRE_GPU();
    using namespace torch::optim;
    const c10::Device gpu(c10::kCUDA, 0);
    for (const auto& devices : {std::vector<c10::Device>{gpu}, {gpu, c10::kCPU}}) {
      expect_updates_of_torch<SGD>(SGDOptions(0.1), devices);
      expect_updates_of_torch<SGD>(SGDOptions(0.1).momentum(0.9).nesterov(true), devices);
      expect_updates_of_torch<Adam>(AdamOptions(0.01).amsgrad(true).weight_decay(0.1), devices);
      expect_updates_of_torch<AdamW>(AdamWOptions(0.01).weight_decay(0.1), devices);
      expect_updates_of_torch<Adagrad>(AdagradOptions(0.1).lr_decay(0.1), devices);
      expect_updates_of_torch<RMSprop>(RMSpropOptions(0.01).momentum(0.9).centered(true), devices);
    }
  });
}

// In one launch both updates would begin from the same value.
TEST_F(CudaOptim, AParameterThatIsListedTwiceIsUpdatedTwice) {
  run(1, [](const Rank&) {
    REQUIRE_GPU();
    Parameters parameters{torch::ones({3}, at::TensorOptions(c10::kCUDA)).requires_grad_()};
    parameters.push_back(parameters[0]);
    parameters[0].mutable_grad() = torch::ones({3}, at::TensorOptions(c10::kCUDA));
    PreparedOptimizer prepared(std::make_shared<torch::optim::SGD>(parameters, 0.25));
    prepared.step();
    EXPECT_EQ(parameters[0][0].item<double>(), 0.5);
  });
}

TEST_F(CudaOptim, ClippingHasTheValuesOfTheCpu) {
  run(1, [](const Rank&) {
    REQUIRE_GPU();
    const c10::Device gpu(c10::kCUDA, 0);
    for (const auto& devices : {std::vector<c10::Device>{gpu, gpu}, {gpu, c10::kCPU}}) {
      for (const double norm_type : {1.0, 2.0, std::numeric_limits<double>::infinity()}) {
        Parameters own = parameters_on(devices);
        Parameters cpu = parameters_on({c10::kCPU, c10::kCPU});
        set_gradients(own, 0);
        set_gradients(cpu, 0);
        const at::Tensor norm = clip_grad_norm_(own, 0.5, {.norm_type = norm_type});
        const double expected = torch::nn::utils::clip_grad_norm_(cpu, 0.5, norm_type);
        EXPECT_EQ(norm.device(), gpu);
        EXPECT_NEAR(norm.item<double>() / expected, 1, 1e-5);
        for (size_t i = 0; i < own.size(); ++i) {
          EXPECT_TRUE(torch::allclose(own[i].grad().cpu(), cpu[i].grad(), 1e-4, 1e-7)) << i;
        }
      }
    }
  });
}

TEST_F(CudaOptim, ClippingTakesHalfPrecisionBeyondItsRange) {
  run(1, [](const Rank&) {
    REQUIRE_GPU();
    const at::Tensor parameter =
        torch::zeros({10'000}, at::TensorOptions(at::kHalf).device(c10::kCUDA)).requires_grad_();
    parameter.mutable_grad() = torch::full_like(parameter, 1000).detach();
    EXPECT_NEAR(clip_grad_norm_(parameter, 1.0).item<double>(), 1e5, 100);
    EXPECT_NEAR(parameter.grad()[0].item<double>(), 0.01, 1e-4);
  });
}

}  // namespace
}  // namespace accelerate
