// What a rank keeps in each stage, counted by the allocator.
#include "multiproc/zero/counted_memory.h"
#include "multiproc/zero/zero_training.h"

namespace accelerate::test {
namespace {

struct ZeroMemory : Ranks {};

constexpr int64_t kWidth = 128;
constexpr int64_t kLayers = 16;
constexpr int64_t kLayerBytes = 4 * kWidth * (kWidth + 1);
constexpr int64_t kModelBytes = kLayers * kLayerBytes;

struct Tower : torch::nn::Module {
  Tower() {
    for (int64_t i = 0; i < kLayers; ++i) {
      layers.push_back(
          register_module("layer" + std::to_string(i), torch::nn::Linear(kWidth, kWidth)));
    }
    to(test_device());
  }
  // A product and a sum: for both at once cuBLAS takes memory of its own from the allocator.
  at::Tensor forward(at::Tensor hidden) {
    for (auto& layer : layers) {
      hidden = torch::tanh(hidden.matmul(layer->weight.t()) + layer->bias);
    }
    return hidden;
  }
  std::vector<torch::nn::Linear> layers;
};

// Bytes beyond those of the model.
struct Kept {
  int64_t most_in_forward = 0;
  int64_t after_backward = 0;
  int64_t most_in_backward = 0;
  int64_t after_step = 0;
  int64_t most_in_step = 0;
};

// Of the second step: the first makes what stays.
Kept kept_by(const AcceleratorOptions& options, const MemoryCount& memory) {
  const at::Tensor input = ones({2, kWidth});
  const int64_t before = memory.now();
  Kept kept;
  Accelerator accelerator(options);
  auto net = std::make_shared<Tower>();
  auto [model, optimizer] = accelerator.prepare(net, torch::optim::AdamW(net->parameters(), 0.01));
  for (int step = 0; step < 2; ++step) {
    const auto beyond = [&](int64_t bytes) { return bytes - before - kModelBytes; };
    memory.begin_most();
    at::Tensor loss = model(input).square().mean();
    kept.most_in_forward = beyond(memory.most());
    memory.begin_most();
    accelerator.backward(loss);
    kept.most_in_backward = beyond(memory.most());
    loss.reset();
    kept.after_backward = beyond(memory.now());
    memory.begin_most();
    optimizer.step();
    kept.most_in_step = beyond(memory.most());
    optimizer.zero_grad();
    kept.after_step = beyond(memory.now());
  }
  return kept;
}

TEST_F(ZeroMemory, IsSharedOutStageByStage) {
  for (const int ranks : {2, 4}) {
    run(ranks, [](const Rank& rank) {
      const MemoryCount memory;
      const DdpOptions in_layers{.bucket_cap_mb = 1.05 * kLayerBytes / (1024.0 * 1024)};
      (void)kept_by(on_cpu(in_layers), memory);  // libraries take what they keep
      const Kept whole = kept_by(on_cpu(in_layers), memory);
      EXPECT_GT(whole.after_step, 2 * kModelBytes);
      EXPECT_GT(whole.after_backward, 3 * kModelBytes);
      // What is not of the model: activations, collectives, counts.
      constexpr int64_t kRest = 2 * kLayerBytes;
      const int64_t share = kModelBytes / rank.world_size;
      for (const int stage : {1, 2}) {
        const Kept own = kept_by(zero(stage, in_layers), memory);
        const int64_t state = 2 * share;
        // Stage 1 has the buckets of DDP beside gradients.
        const int64_t gradients = stage == 1 ? whole.after_backward - 2 * kModelBytes : share;
        const int64_t buckets = stage == 1 ? whole.after_step - 2 * kModelBytes : 0;
        EXPECT_LT(own.after_step, state + buckets + kRest) << "stage " << stage;
        EXPECT_LT(own.after_backward, state + gradients + kRest) << "stage " << stage;
        // Two buckets are under way, with what Gloo puts them together in.
        EXPECT_LT(own.most_in_step, own.after_backward + 8 * kLayerBytes) << "stage " << stage;
        if (stage == 1) continue;
        EXPECT_LT(own.most_in_backward, state + share + 6 * kLayerBytes + kRest)
            << "stage " << stage;
      }
      // Parameters too, but for units that are in use, one that comes and one that goes.
      const Kept own = kept_by(zero(3, in_layers), memory);
      const int64_t parameters = share - kModelBytes;
      EXPECT_LT(own.after_step, 2 * share + parameters + kRest);
      EXPECT_LT(own.after_backward, 3 * share + parameters + kRest);
      EXPECT_LT(own.most_in_step, 3 * share + parameters + kRest);
      const bool over_nccl = wanted_test_device() == TestDevice::kGpuOverNccl;
      // Gloo puts a unit together in memory of its own.
      EXPECT_LT(own.most_in_forward,
                2 * share + parameters + (over_nccl ? 2 : 3) * kLayerBytes + kRest);
      // Gradients: those of a layer, two on their way; Gloo has copies of its own.
      EXPECT_LT(own.most_in_backward,
                3 * share + parameters + (over_nccl ? 6 : 10) * kLayerBytes + kRest);
    });
  }
}

}  // namespace
}  // namespace accelerate::test
