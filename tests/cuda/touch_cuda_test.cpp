// Sharded parameters on a GPU: memory and streams of units, and kernels that read pointers.
#include <accelerate/ops.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <limits>
#include <string>

#include "../examples/gpt2/gpt2.h"
#include "cuda/lone_gpu.h"
#include "unit/residency/lone_shards.h"

namespace accelerate::test {
namespace {

using testing::HasSubstr;

struct TouchCuda : LoneRank {};

const c10::Device kTouchGpu(c10::kCUDA, 0);
constexpr int64_t kTouchWidth = 1024;

struct Layer : torch::nn::Module {
  Layer() : linear(register_module("linear", torch::nn::Linear(kTouchWidth, kTouchWidth))) {
    torch::NoGradGuard no_grad;
    linear->weight.copy_(torch::arange(kTouchWidth * kTouchWidth).reshape_as(linear->weight));
    to(kTouchGpu);
  }
  torch::nn::Linear linear;
};

double sum_of_weights() {
  const double last = static_cast<double>(kTouchWidth * kTouchWidth) - 1;
  return last * (last + 1) / 2;
}

// Keeps the current stream busy for a tenth of a second or more.
void work_long() {
  at::Tensor square = torch::rand({8192, 8192}, kTouchGpu);
  for (int i = 0; i < 10; ++i) square = torch::mm(square, square).clamp(-1, 1);
}

// While it lives, another stream of the GPU is the current one.
class OtherStream {
 public:
  OtherStream()
      : before_(guard_.exchangeStream(guard_.getStreamFromGlobalPool(kTouchGpu, false))) {}
  ~OtherStream() { guard_.exchangeStream(before_); }
  OtherStream(const OtherStream&) = delete;
  OtherStream& operator=(const OtherStream&) = delete;

 private:
  c10::impl::VirtualGuardImpl guard_{c10::kCUDA};
  c10::Stream before_;
};

TEST_F(TouchCuda, ATouchOnAnotherStreamWaitsForTheGather) {
  alone([](const Rank&) {
    REQUIRE_GPU();
    const torch::NoGradGuard no_grad;
    Layer net;
    const LoneUnits lone(net);
    torch::cuda::synchronize();
    work_long();
    (void)net.linear->weight.sum();  // gathers behind all of that
    at::Tensor sum;
    {
      const OtherStream other;
      sum = net.linear->weight.sum(at::kDouble);
    }
    torch::cuda::synchronize();
    EXPECT_EQ(sum.item<double>(), sum_of_weights());
  });
}

TEST_F(TouchCuda, MemoryOfAUnitIsNotUsedAgainWhileAnotherStreamReadsIt) {
  alone([](const Rank&) {
    REQUIRE_GPU();
    const torch::NoGradGuard no_grad;
    Layer net;
    LoneUnits lone(net);
    at::Tensor sum;
    (void)net.linear->weight.sum();
    torch::cuda::synchronize();
    {
      const OtherStream other;
      work_long();
      sum = net.linear->weight.sum(at::kDouble);
    }
    lone.units.release_all();
    // What the allocator gave for the row it would give again.
    std::vector<at::Tensor> others;
    for (int i = 0; i < 4; ++i) {
      others.push_back(torch::full({lone.units.layout(0).whole_numel()},
                                   std::numeric_limits<float>::quiet_NaN(), kTouchGpu));
    }
    torch::cuda::synchronize();
    EXPECT_EQ(sum.item<double>(), sum_of_weights());
  });
}

TEST_F(TouchCuda, APointerOfAUnitInPiecesIsRefusedByItsName) {
  alone([](const Rank&) {
    REQUIRE_GPU();
    Layer net;
    const LoneUnits lone(net);
    try {
      (void)net.linear->weight.data_ptr();
      FAIL() << "was read";
    } catch (const c10::Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("parameter 'linear.weight' is in pieces"));
    }
  });
}

// A small GPT-2 in bf16, whose layers are kernels of this library where they fit.
struct TouchedGpt2 {
  explicit TouchedGpt2(bool in_units) {
    at::manual_seed(5);
    net = gpt2::Gpt2(
        gpt2::Config{.vocabulary = 128, .positions = 64, .layers = 2, .heads = 2, .width = 128});
    net->to(kTouchGpu, at::kBFloat16);
    if (in_units) lone.emplace(*net);
  }
  // The loss and all gradients.
  std::vector<at::Tensor> pass() {
    at::manual_seed(6);
    const at::Tensor tokens = torch::randint(128, {4, 65}, at::kLong).to(kTouchGpu);
    const at::Tensor loss =
        net->forward(tokens.narrow(1, 0, 64).contiguous(), tokens.narrow(1, 1, 64).contiguous());
    loss.backward();
    std::vector<at::Tensor> all{loss.detach()};
    for (const auto& parameter : net->parameters()) all.push_back(parameter.grad());
    return all;
  }

  gpt2::Gpt2 net{nullptr};
  std::optional<LoneUnits> lone;
};

TEST_F(TouchCuda, FusedKernelsTouchWhatTheyRead) {
  alone([](const Rank&) {
    REQUIRE_GPU();
    at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/true);
    TouchedGpt2 plain(false), touched(true);
    const std::vector<at::Tensor> expected = plain.pass();
    const std::vector<at::Tensor> actual = touched.pass();
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(actual[i].equal(expected[i])) << i;
    }
    EXPECT_GT(touched.lone->units.gathers(), 3);
  });
}

}  // namespace
}  // namespace accelerate::test
