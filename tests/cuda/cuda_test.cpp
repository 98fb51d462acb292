// What needs a GPU. Every test is skipped, visibly, where there is none. One GPU suffices: NCCL,
// which refuses two ranks on one GPU, is tested at world size 1 and several ranks through Gloo.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "accelerate/accelerate.h"
#include "compat/reducer.h"
#include "cuda/lone_gpu.h"
#include "cuda/lone_nccl.h"
#include "cuda/small_net.h"
#include "device/cuda_plugin.h"
#include "support/ranks.h"

namespace accelerate {
namespace {

using test::Rank;
using test::Ranks;
using testing::HasSubstr;

using Net = test::SmallNet;

TensorDataset some_data() {
  torch::manual_seed(11);
  return {torch::randn({96, 8}), torch::randint(3, {96})};
}

// Trains and returns all parameters in one row on the CPU.
at::Tensor train(AcceleratorOptions options, int64_t batch_size) {
  Accelerator accelerator(options);
  torch::manual_seed(7);
  Net net;
  torch::optim::AdamW adamw(net->parameters(), 1e-2);
  auto [optimizer, model, loader] = accelerator.prepare(
      adamw, net, data_loader(some_data(), {.batch_size = batch_size, .shuffle = true, .seed = 3}));
  for (int epoch = 0; epoch < 3; ++epoch) {
    for (auto& batch : loader) {
      EXPECT_EQ(batch.data.device(), accelerator.device());
      optimizer.zero_grad();
      auto loss = torch::nn::functional::cross_entropy(model(batch.data), batch.target);
      accelerator.backward(loss);
      optimizer.step();
    }
  }
  std::vector<at::Tensor> rows;
  for (const at::Tensor& parameter : model->parameters()) {
    EXPECT_EQ(parameter.device(), accelerator.device());
    rows.push_back(parameter.detach().cpu().reshape(-1));
  }
  return torch::cat(rows);
}

TEST_F(Ranks, OneProcessTrainsOnTheGpuAsOnTheCpu) {
  run(1, [](const Rank&) {
    REQUIRE_GPU();
    const at::Tensor on_gpu = train({}, 32);
    const at::Tensor on_cpu = train({.cpu = true}, 32);
    EXPECT_LT((on_gpu - on_cpu).abs().max().item<double>(), 1e-4);
  });
}

// libtorch asks for its CUDA half once, at the first question about it, and a seed is one.
TEST_F(Ranks, AProgramMaySeedBeforeItMakesAnAccelerator) {
  run(1, [](const Rank&) {
    torch::manual_seed(5);
    REQUIRE_GPU();
    EXPECT_TRUE(torch::cuda::is_available());
    const at::Tensor first = torch::randn({4}, at::kCUDA);
    torch::manual_seed(5);
    EXPECT_TRUE(torch::randn({4}, at::kCUDA).equal(first)) << "the seed must reach the GPU";
    EXPECT_TRUE(train({}, 32).isfinite().all().item<bool>());
  });
}

TEST_F(Ranks, TheDeviceIsTheGpuOfTheLocalRank) {
  run(1, [](const Rank&) {
    REQUIRE_GPU();
    const Accelerator accelerator;
    EXPECT_EQ(accelerator.device().str(), "cuda:0");
    EXPECT_TRUE(Accelerator({.cpu = true}).device().is_cpu());
  });
}

TEST_F(Ranks, StateOfAnOptimizerThatHasSteppedMovesToTheGpu) {
  run(1, [](const Rank&) {
    REQUIRE_GPU();
    Accelerator accelerator;
    Net net;
    torch::optim::Adagrad adagrad(net->parameters());
    auto [optimizer, model] = accelerator.prepare(adagrad, net);
    accelerator.backward(model(torch::randn({4, 8}, accelerator.device())).sum());
    optimizer.step();
    for (const auto& [key, state] : adagrad.state()) {
      EXPECT_TRUE(static_cast<torch::optim::AdagradParamState&>(*state).sum().is_cuda());
    }
  });
}

TEST_F(Ranks, NcclReducesGradientsAtWorldSizeOne) {
  run(1, [](const Rank&) {
    REQUIRE_GPU();
    const test::LoneNccl nccl;
    const c10::Device gpu = nccl.state.device();
    const at::Tensor tensor = torch::arange(5, gpu).to(torch::kFloat);
    device::Collectives& ranks = nccl.backends.of(c10::kCUDA);
    ranks.all_reduce(tensor, device::Combine::kSum)->wait();
    EXPECT_EQ(tensor.sum().item<float>(), 10.0F);
    EXPECT_EQ(ranks.name(), "nccl");
    EXPECT_EQ(nccl.group->getBackend(c10::kCUDA)->getBackendName(), "nccl");
    EXPECT_EQ(nccl.group->getBackend(c10::kCPU)->getBackendName(), "gloo");

    torch::nn::Linear linear(4, 2);
    linear->to(gpu);
    const auto [reducer, logger] = compat::make_reducer(linear->parameters(), {"weight", "bias"},
                                                        {false, false}, nccl.group, {});
    for (int step = 0; step < 3; ++step) {
      linear->zero_grad();
      auto loss = linear(torch::ones({3, 4}, gpu)).sum();
      reducer->prepare_for_forward();
      reducer->rebuild_buckets();
      reducer->prepare_for_backward({});
      loss.backward();
      EXPECT_TRUE(torch::allclose(linear->bias.grad(), torch::full({2}, 3.0, gpu)));
    }
  });
}

TEST_F(Ranks, NcclRefusesTwoRanksOnOneGpuWithAnExplanation) {
  run(2, [](const Rank&) {
    REQUIRE_GPU();
    if (device::cuda_plugin()->device_count() > 1) GTEST_SKIP() << "more than one GPU";
    try {
      const Accelerator accelerator;
      FAIL() << "two ranks were put on one GPU";
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), HasSubstr("ranks 0 and 1 share one GPU"));
      EXPECT_THAT(error.what(), HasSubstr("kGloo"));
    }
  });
}

constexpr ProcessGroupOptions kGlooOnCuda{.cuda_backend = CudaBackend::kGloo};

TEST_F(Ranks, GlooTakesCudaTensors) {
  run(2, [](const Rank& rank) {
    REQUIRE_GPU();
    Accelerator accelerator({.process_group = kGlooOnCuda});
    const at::Tensor own =
        torch::full({3}, rank.rank + 1.0, torch::TensorOptions().device(accelerator.device()));
    EXPECT_TRUE(torch::equal(accelerator.reduce(own), torch::full({3}, 3.0, own.options())));
    EXPECT_TRUE(torch::equal(accelerator.reduce(own, ReduceOp::kMax),
                             torch::full({3}, 2.0, own.options())));
    const at::Tensor gathered = accelerator.gather(own);
    EXPECT_TRUE(gathered.is_cuda());
    EXPECT_EQ(gathered.sum().item<double>(), 9.0);
    at::Tensor sent = own.clone();
    accelerator.communicator().broadcast(sent, 1);
    EXPECT_EQ(sent[0].item<double>(), 2.0);
    accelerator.wait_for_everyone();
  });
}

TEST_F(Ranks, TwoRanksOnOneGpuTrainLikeOneWithTheJoinedBatch) {
  // The number of GPUs, and behind it the parameters after training on them.
  const auto trained = [](const AcceleratorOptions& options, int64_t batch_size) {
    const int gpus = ProcessState::from_environment().gpu_count();
    std::vector<float> report{static_cast<float>(gpus)};
    if (gpus == 0) return report;
    const at::Tensor row = train(options, batch_size);
    report.insert(report.end(), row.data_ptr<float>(), row.data_ptr<float>() + row.numel());
    return report;
  };
  const auto two =
      run_collect(2, [&](const Rank&) { return trained({.process_group = kGlooOnCuda}, 16); });
  const auto one = run_collect(1, [&](const Rank&) { return trained({}, 32); });
  if (one[0] == std::vector<float>{0} && two[0] == one[0] && two[1] == one[0]) {
    GTEST_SKIP() << "no GPU";
  }
  ASSERT_GT(one[0].size(), 1U);
  ASSERT_EQ(one[0].size(), two[0].size());
  EXPECT_EQ(two[0], two[1]);
  for (size_t i = 0; i < one[0].size(); ++i) EXPECT_NEAR(one[0][i], two[0][i], 1e-4) << i;
}

}  // namespace
}  // namespace accelerate
