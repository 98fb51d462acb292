// Precision, seeds, memory and communication hooks on a GPU. Skipped, visibly, where there is none.
#include <accelerate/accelerate.h>
#include <accelerate/autocast.h>
#include <accelerate/grad_scaler.h>
#include <accelerate/memory.h>
#include <accelerate/memory_tracker.h>
#include <accelerate/random.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <limits>

#include "comm/groups/process_group.h"
#include "comm/rendezvous/rendezvous.h"
#include "compat/reducer.h"
#include "cuda/lone_gpu.h"
#include "strategy/ddp/comm_hooks.h"
#include "support/ranks.h"

namespace accelerate {
namespace {

using test::Rank;
using test::Ranks;
using testing::ElementsAre;
using testing::HasSubstr;

struct CudaPrecision : Ranks {};

const c10::Device kGpu(c10::kCUDA, 0);
const auto kOnGpu = at::TensorOptions().device(c10::kCUDA);

TEST_F(CudaPrecision, AutocastCastsProductsOfTheGpuAlone) {
  run(1, [](const Rank&) {
    REQUIRE_GPU();
    const PrecisionPolicy policy(MixedPrecision::kFp16, kGpu);
    at::Tensor output;
    {
      const auto guard = policy.autocast();
      output = torch::mm(torch::ones({4, 4}, kOnGpu), torch::ones({4, 4}, kOnGpu));
      EXPECT_EQ(torch::mm(torch::ones({2, 2}), torch::ones({2, 2})).scalar_type(), at::kFloat);
    }
    EXPECT_EQ(output.scalar_type(), at::kHalf);
    EXPECT_EQ(policy.output(output).scalar_type(), at::kFloat);
    EXPECT_EQ(torch::mm(torch::ones({4, 4}, kOnGpu), torch::ones({4, 4}, kOnGpu)).scalar_type(),
              at::kFloat);
  });
}

TEST_F(CudaPrecision, Fp8IsRefusedWithWhatIsThere) {
  run(1, [](const Rank&) {
    REQUIRE_GPU();
    try {
      PrecisionPolicy(MixedPrecision::kFp8, kGpu);
      FAIL() << "accepted";
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), HasSubstr("8-bit matrix products are not part of this version"));
    }
  });
}

TEST_F(CudaPrecision, ScalerKeepsItsStateOnTheGpu) {
  run(1, [](const Rank&) {
    REQUIRE_GPU();
    GradScaler scaler({.init_scale = 1024, .growth_interval = 2});
    auto weight = torch::zeros({2}, kOnGpu.requires_grad(true));
    auto on_host = torch::zeros({2}, torch::requires_grad());  // another device in one optimizer
    torch::optim::SGD sgd({weight, on_host}, 1.0);
    std::vector<double> scales;
    for (const float slope : {3.0F, std::numeric_limits<float>::infinity(), 1.0F, 1.0F}) {
      sgd.zero_grad();
      const auto loss = scaler.scale((weight * slope).sum() + on_host.sum().cuda());
      EXPECT_TRUE(loss.is_cuda());
      loss.backward();
      scaler.step(sgd);
      scaler.update();
      scales.push_back(scaler.scale_factor());
    }
    EXPECT_THAT(scales, ElementsAre(1024, 512, 512, 1024));
    EXPECT_TRUE(weight.detach().cpu().equal(torch::full({2}, -5.0F)));
    EXPECT_TRUE(on_host.equal(torch::full({2}, -3.0F)));
    GradScaler fresh;
    fresh.load_state_dict(scaler.state_dict());
    EXPECT_EQ(fresh.scale_factor(), 1024);
  });
}

TEST_F(CudaPrecision, TrainsInHalfPrecisionLikeInFloat) {
  run(1, [](const Rank&) {
    REQUIRE_GPU();
    const auto loss_in = [](MixedPrecision precision) {
      set_seed(3);
      const PrecisionPolicy policy(precision, kGpu);
      GradScaler scaler({.growth_interval = 20, .enabled = policy.needs_grad_scaler()});
      torch::nn::Sequential net(torch::nn::Linear(16, 32), torch::nn::Tanh(),
                                torch::nn::Linear(32, 4));
      net->to(kGpu);
      torch::optim::SGD sgd(net->parameters(), 0.1);
      const auto input = torch::randn({64, 16}, kOnGpu);
      const auto target = torch::randn({64, 4}, kOnGpu) * 0.5;
      at::Tensor loss;
      for (int step = 0; step < 200; ++step) {
        sgd.zero_grad();
        at::Tensor output;
        {
          const auto guard = policy.autocast();
          output = net->forward(input);
        }
        loss = torch::mse_loss(policy.output(output), target);
        scaler.scale(loss).backward();
        scaler.step(sgd);
        scaler.update();
      }
      return loss.item<double>();
    };
    const double full = loss_in(MixedPrecision::kNo);
    EXPECT_NEAR(loss_in(MixedPrecision::kFp16), full, 0.01);
    EXPECT_NEAR(loss_in(MixedPrecision::kBf16), full, 0.02);
  });
}

TEST_F(CudaPrecision, SeedsTheGpuToo) {
  run(1, [](const Rank&) {
    set_seed(7);  // the first use of CUDA
    REQUIRE_GPU();
    const auto first = torch::rand({4}, kOnGpu);
    set_seed(7);
    EXPECT_TRUE(torch::rand({4}, kOnGpu).equal(first));
    EXPECT_FALSE(torch::rand({4}, kOnGpu).equal(first));
  });
}

// Two ranks on one GPU, so through Gloo.
AcceleratorOptions through_gloo() {
  return {.process_group = {.timeout = test::kUnreachedTimeout,
                            .rendezvous_timeout = test::kUnreachedTimeout,
                            .cuda_backend = CudaBackend::kGloo}};
}

TEST_F(CudaPrecision, RanksShareTheStateOfTheGpusGenerator) {
  run(2, [](const Rank& rank) {
    REQUIRE_GPU();
    Accelerator accelerator(through_gloo());
    set_seed(7, {.device_specific = true, .rank = rank.rank});
    (void)torch::rand({3 + rank.rank}, kOnGpu);
    synchronize_rng_states(accelerator.communicator(), {"cuda"});
    const auto drawn = accelerator.gather(torch::rand({4}, kOnGpu));
    EXPECT_TRUE(drawn.narrow(0, 0, 4).equal(drawn.narrow(0, 4, 4)));
  });
}

TEST_F(CudaPrecision, TrackerSeesTensorsOfTheGpu) {
  run(1, [](const Rank&) {
    REQUIRE_GPU();
    constexpr int64_t kMegabyte = 1024 * 1024;
    (void)torch::zeros({300 * kMegabyte}, kOnGpu.dtype(at::kByte));  // a peak before the block
    const MemoryTracker tracker("block", c10::Device(c10::kCUDA));
    at::Tensor kept = torch::zeros({64 * kMegabyte}, kOnGpu.dtype(at::kByte));
    (void)torch::zeros({128 * kMegabyte}, kOnGpu.dtype(at::kByte));
    const MemoryReport report = tracker.report();
    ASSERT_TRUE(report.device_memory.has_value());
    EXPECT_EQ(report.device, kGpu);
    EXPECT_EQ(report.device_memory->used_bytes(), 64 * kMegabyte);
    EXPECT_EQ(report.device_memory->peaked_bytes(), 192 * kMegabyte);
    EXPECT_THAT(report.to_string(), HasSubstr("cuda:0 memory: "));
    release_memory(kept);
    EXPECT_EQ(tracker.report().device_memory->used_bytes(), 0);
  });
}

using Group = c10::intrusive_ptr<c10d::ProcessGroup>;

// The gradient that a reducer with this hook makes of `mine`, after the passes before PowerSGD.
at::Tensor reduced(const Group& group, const at::Tensor& mine, const CommHookOptions& options) {
  auto weight = torch::zeros_like(mine).requires_grad_(true);
  auto made = compat::make_reducer({weight}, {"weight"}, {false}, group, {});
  register_comm_hook(*made.reducer, group, options);
  for (int pass = 0; pass < 4; ++pass) {
    weight.mutable_grad().reset();
    made.reducer->arm({});
    (weight * mine).sum().backward();
  }
  return weight.grad().clone();
}

// All hooks on a mean of low rank, which `mine` differs from by `apart` on each rank.
void expect_hooks_average(const Group& group, double apart) {
  for (const int64_t power : {1, 4}) {
    const auto mean =
        torch::mm(torch::randn({48, power}, kOnGpu), torch::randn({power, 40}, kOnGpu));
    const auto mine = mean + torch::randn({48, 40}, kOnGpu) * apart;
    const double scale = mean.norm().item<double>();
    const auto distance = [&](const CommHookOptions& options) {
      return (reduced(group, mine, options) - mean).norm().item<double>() / scale;
    };
    EXPECT_LT(distance({.hook = "fp16"}), 2e-3);
    EXPECT_LT(distance({.hook = "bf16"}), 2e-2);
    EXPECT_LT(
        distance({.hook = "power_sgd",
                  .power_sgd = {.matrix_approximation_rank = power, .start_power_sgd_iter = 2}}),
        1e-3);
  }
}

TEST_F(CudaPrecision, HooksAverageGradientsOfTheGpuThroughGloo) {
  run(2, [](const Rank& rank) {
    REQUIRE_GPU();
    Accelerator accelerator(through_gloo());
    set_seed(11);
    expect_hooks_average(comm::process_group_of(accelerator.communicator()),
                         rank.rank == 0 ? 1 : -1);
  });
}

TEST_F(CudaPrecision, HooksRunOnNccl) {
  run(1, [](const Rank&) {
    REQUIRE_GPU();
    const ProcessState state = ProcessState::from_environment();
    const comm::Meeting meeting = comm::meet(state.ranks(), test::kUnreachedTimeout);
    set_seed(11);
    comm::Alarm alarm;
    const auto backends =
        comm::open_backends(meeting.store, state, {.timeout = std::chrono::minutes(2)}, alarm,
                            std::make_shared<comm::CollectiveLog>(std::make_shared<EventStream>()));
    expect_hooks_average(
        backends.make_process_group(meeting.store,
                                    {.rank = state.rank(), .world_size = state.world_size()}),
        0);
  });
}

}  // namespace
}  // namespace accelerate
