// How much a training step sends where parameters live in shards.
#include "multiproc/zero/written_bytes.h"
#include "multiproc/zero/zero_training.h"

namespace accelerate::test {
namespace {

struct ZeroBytes : Ranks {};

constexpr int64_t kTiedWidth = 256;
constexpr int64_t kTiedLayers = 8;
constexpr int64_t kTiedBytes = 4 * 4 * kTiedWidth * kTiedWidth;
constexpr int64_t kTiedLayerBytes = 4 * kTiedWidth * kTiedWidth;

// As language models with tied embeddings: what is used first is used last as well.
struct TiedTower : torch::nn::Module {
  TiedTower() {
    const auto linear = [](int64_t out) {
      return torch::nn::Linear(torch::nn::LinearOptions(kTiedWidth, out).bias(false));
    };
    ends = register_module("ends", linear(4 * kTiedWidth));
    for (int64_t i = 0; i < kTiedLayers; ++i) layers->push_back(linear(kTiedWidth));
    register_module("layers", layers);
    to(test_device());
  }
  at::Tensor forward(at::Tensor hidden) {
    hidden = ends(hidden).narrow(1, 0, kTiedWidth);
    for (const auto& layer : *layers) {
      hidden = torch::tanh(layer->as<torch::nn::Linear>()->forward(hidden));
    }
    return ends(hidden);
  }
  torch::nn::Linear ends{nullptr};
  torch::nn::ModuleList layers;
};

int64_t sent_in_a_known_step(const ZeroUnits& units) {
  AcceleratorOptions options = on_cpu();
  options.strategy = ZeroOptions{.stage = 3, .units = units};
  Accelerator accelerator(options);
  torch::manual_seed(4);
  auto net = std::make_shared<TiedTower>();
  auto [model, optimizer] = accelerator.prepare(net, torch::optim::SGD(net->parameters(), 0.01));
  int64_t sent = 0;
  for (int step = 0; step < 4; ++step) {
    const int64_t before = written_bytes();
    accelerator.backward(model(ones({2, kTiedWidth})).square().mean());
    sent = written_bytes() - before;
    optimizer.step();
    optimizer.zero_grad();
  }
  return sent;
}

// FSDP keeps the outermost unit whole from pass to pass, and sends the others twice.
TEST_F(ZeroBytes, OfTiedEndsAreSentOnceAndThoseOfMostLayersTwice) {
  if (tests_on_gpu()) GTEST_SKIP() << "bytes are counted where they go through sockets";
  run(2, [](const Rank&) {
    constexpr int64_t kRest = 30'000;  // what ranks tell each other beside values
    const int64_t once = sent_in_a_known_step({.reshard_after_forward = false});
    EXPECT_GT(once, (kTiedBytes + kTiedLayers * kTiedLayerBytes) / 2);
    const int64_t again = sent_in_a_known_step({}) - once;
    // Beside the ends three layers have room at the turn. FSDP sends all eight again.
    EXPECT_NEAR(again, 5 * kTiedLayerBytes / 2, kRest);
  });
}

}  // namespace
}  // namespace accelerate::test
