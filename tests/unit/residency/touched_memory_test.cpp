// How many bytes units need, counted where libtorch allocates.
#include <accelerate/autocast.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>

#include "compat/gradient_hooks.h"
#include "residency/touch/unit_gradients.h"
#include "unit/residency/lone_shards.h"

namespace accelerate::test {
namespace {

// Counts what tensors of the host hold.
class CountingAllocator final : public c10::Allocator {
 public:
  CountingAllocator() : below_(c10::GetCPUAllocator()) { c10::SetCPUAllocator(this, kPriority); }
  ~CountingAllocator() override { c10::SetCPUAllocator(below_, kPriority); }

  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, c10::Device(c10::kCPU)};
    held += static_cast<int64_t>(bytes);
    peak = std::max(peak.load(), held.load());
    auto* block = static_cast<char*>(
        std::aligned_alloc(kHeader, (bytes + 2 * kHeader - 1) / kHeader * kHeader));
    *reinterpret_cast<int64_t*>(block) = static_cast<int64_t>(bytes);
    char* memory = block + kHeader;
    return {memory, memory, &give_back, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

  static inline std::atomic<int64_t> held{0};
  static inline std::atomic<int64_t> peak{0};

 private:
  static constexpr uint8_t kPriority = 200;
  static constexpr size_t kHeader = 64;

  static void give_back(void* memory) {
    if (memory == nullptr) return;
    char* block = static_cast<char*>(memory) - kHeader;
    held -= *reinterpret_cast<int64_t*>(block);
    std::free(block);
  }

  c10::Allocator* below_;
};

constexpr int kLength = 8;
constexpr int64_t kUnitBytes = 256 * 256 * 4;
constexpr int64_t kSmall = kUnitBytes / 8;  // activations of one sample, and what else is around

struct TowerImpl : torch::nn::Module {
  TowerImpl() {
    for (int i = 0; i < kLength; ++i) {
      floors.push_back(register_module(
          std::to_string(i), torch::nn::Linear(torch::nn::LinearOptions(256, 256).bias(false))));
    }
  }
  at::Tensor forward(at::Tensor x) {
    for (auto& floor : floors) x = torch::tanh(floor(x));
    return x;
  }
  std::vector<torch::nn::Linear> floors{};
};
TORCH_MODULE(Tower);

at::Tensor run_forward(Tower& tower, bool autocast) {
  AutocastOptions options;
  options.enabled = autocast;
  const Autocast scope(at::kCPU, at::kBFloat16, options);
  return tower->forward(torch::ones({1, 256}));
}

struct TouchedMemory : testing::Test {
  struct Held {
    int64_t most = 0;     // in a step
    int64_t between = 0;  // its two passes
  };

  // Bytes beyond those at the beginning of a step, whose gradients are dropped as they come.
  Held plain_step(bool autocast = false) const {
    Tower tower;
    std::vector<at::Tensor> parameters = tower->parameters();
    compat::GradientHooks drop(parameters,
                               [&](size_t index) { parameters[index].mutable_grad().reset(); });
    const int64_t before = CountingAllocator::held;
    CountingAllocator::peak = before;
    const at::Tensor out = run_forward(tower, autocast);
    Held result{.between = CountingAllocator::held - before};
    out.to(at::kFloat).sum().backward();
    result.most = CountingAllocator::peak - before;
    return result;
  }

  // The same in the third step with units.
  Held step_in_units(const residency::TouchOptions& options, bool autocast = false) const {
    Tower tower;
    LoneUnits lone(unit_of_each_child(*tower), options, 0, 4);
    residency::UnitGradients gradients(lone.units, [&](size_t unit) {
      tower->floors[unit]->weight.mutable_grad().reset();
      lone.units.gradient_done(unit);
    });
    Held result;
    for (int step = 0; step < 3; ++step) {
      const int64_t before = CountingAllocator::held;
      CountingAllocator::peak = before;
      gradients.begin_pass();
      const at::Tensor out = run_forward(tower, autocast);
      result.between = CountingAllocator::held - before;
      out.to(at::kFloat).sum().backward();
      EXPECT_TRUE(gradients.end_pass().empty());
      lone.units.release_all();
      EXPECT_LE(CountingAllocator::held - before, kSmall);
      result.most = CountingAllocator::peak - before;
    }
    return result;
  }

  CountingAllocator allocator;
};

TEST_F(TouchedMemory, ARankHoldsItsShardsAndNoMore) {
  Tower tower;
  const int64_t whole = CountingAllocator::held;
  EXPECT_GE(whole, kLength * kUnitBytes);
  std::vector<residency::UnitParameters> parameters = unit_of_each_child(*tower);
  auto gatherer = std::make_shared<LoneGatherer>(parameters, 1, 4);
  const int64_t with_gatherer = CountingAllocator::held;
  const residency::TouchedUnits units(std::move(parameters), 1, 4, gatherer, {});
  EXPECT_LE(CountingAllocator::held - with_gatherer, -kLength * kUnitBytes / 4 * 3 + kSmall);
}

TEST_F(TouchedMemory, AStepNeedsTwoUnitsBesideWhatItNeedsAnyway) {
  const Held plain = plain_step();
  const Held parted = step_in_units({});
  EXPECT_LE(parted.most, plain.most + 2 * kUnitBytes + kSmall);
  EXPECT_LE(parted.between, plain.between + 2 * kUnitBytes + kSmall);
}

TEST_F(TouchedMemory, AStepWithoutPrefetchNeedsOneUnit) {
  EXPECT_LE(step_in_units({.prefetch_units = 0}).most, plain_step().most + kUnitBytes + kSmall);
}

TEST_F(TouchedMemory, NoCopyThatAutocastMadeOutlivesItsUnit) {
  const Held plain = plain_step(true);
  // The graph keeps all copies but the first, whose input needs no gradient.
  EXPECT_GE(plain.between, (kLength - 1) * kUnitBytes / 2);
  const Held parted = step_in_units({}, true);
  EXPECT_LE(parted.between, 2 * (kUnitBytes + kUnitBytes / 2) + kSmall);
  // In the backward pass: two units with copies, and a gradient in both types, laid out anew.
  EXPECT_LE(parted.most, 5 * kUnitBytes + kSmall);
}

}  // namespace
}  // namespace accelerate::test
