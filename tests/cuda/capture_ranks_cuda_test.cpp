// Recorded steps of ranks that exchange something. Skipped, visibly, where there is no GPU.
#include <accelerate/accelerate.h>
#include <accelerate/step_capture.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <vector>

#include "cuda/lone_gpu.h"
#include "cuda/lone_nccl.h"

namespace accelerate {
namespace {

using test::Rank;
using Tensors = std::vector<at::Tensor>;

struct CaptureOnRanks : test::LoneRank {};

TEST_F(CaptureOnRanks, CollectivesOfNcclArePartOfTheGraph) {
  alone([](const Rank&) {
    REQUIRE_GPU();
    const test::LoneNccl nccl;
    Accelerator accelerator;
    auto step = accelerator.capture([&](const Tensors& in) -> Tensors {
      std::vector<at::Tensor> sum{in[0] * 2};
      nccl.group->allreduce(sum)->wait();
      return {sum[0] + 1};
    });
    for (int i = 0; i < 8; ++i) {
      EXPECT_EQ(step({torch::full({4}, float(i), accelerator.device())})[0].sum().item<float>(),
                8.0F * static_cast<float>(i) + 4.0F);
    }
    EXPECT_EQ(step.fallback_reason(), "");
    EXPECT_EQ(step.replays(), 5);
  });
}

TEST_F(CaptureOnRanks, StepsOfRanksThatMeetThroughTheHostRunAsTheyAre) {
  run(2, [](const Rank& rank) {
    REQUIRE_GPU();
    Accelerator accelerator({.process_group = {.cuda_backend = CudaBackend::kGloo}});
    torch::nn::Linear net(3, 1);
    torch::optim::AdamW adamw(net->parameters(), 1e-2);
    auto [model, optimizer] = accelerator.prepare(net, adamw);
    auto step = accelerator.capture([&, &model = model](const Tensors& in) -> Tensors {
      accelerator.backward(model(in[0]).sum());
      return {};
    });
    EXPECT_THAT(step.fallback_reason(), testing::HasSubstr("through the host"));
    step({torch::full({1, 3}, rank.rank + 1.0, accelerator.device())});
    EXPECT_EQ(net->weight.grad().sum().item<float>(), 4.5F);
  });
}

}  // namespace
}  // namespace accelerate
