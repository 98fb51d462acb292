// Loops that are ported by half, on ranks that are to stay replicas of each other.
#pragma once

#include <gmock/gmock.h>

#include <functional>
#include <optional>
#include <set>

#include "multiproc/training.h"

namespace accelerate::test {

struct Replicas : Ranks {
  // A UsageError that is the same on all ranks but for the rank in front.
  void expect_one_error_on_all(int world_size, const testing::Matcher<std::string>& matcher) {
    std::set<std::string> texts;
    for (int rank = 0; rank < world_size; ++rank) {
      EXPECT_EQ(exit_code_of(rank), kExitUsageError) << error_of(rank);
      const std::string text = error_of(rank);
      EXPECT_THAT(text, testing::HasSubstr("[rank " + std::to_string(rank) + " of "));
      texts.insert(text.substr(text.find(']')));
    }
    EXPECT_THAT(texts, testing::ElementsAre(matcher));
  }
};

inline constexpr const char* kLocalPass = "a backward pass bypassed accelerator.backward(loss)";

inline TensorDataset replica_samples() {
  const StepData data = host_data_of_step(1, 16);
  return {data.input, data.target};
}

// A model, its optimizer and a loader, prepared, beside what they were made of.
struct HalfPorted {
  explicit HalfPorted(const DdpOptions& ddp = {}) : accelerator(on_cpu(ddp)) {
    torch::manual_seed(3);
    prepare();
  }
  // Another model, with all that belongs to it.
  void prepare() {
    net = std::make_shared<Mlp>();
    sgd = std::make_shared<torch::optim::SGD>(net->parameters(), 0.1);
    model.emplace(accelerator.prepare(net));
    optimizer.emplace(accelerator.prepare(sgd));
    loader.emplace(accelerator.prepare(data_loader(replica_samples(), {.batch_size = 2})));
  }
  // A step and a pass as they should be.
  void train_on(const at::Tensor& input, const at::Tensor& target) {
    accelerator.backward(loss_of((*model)(input), target));
    optimizer->step();
    optimizer->zero_grad();
  }
  // With `after` each step, which is given how many there were.
  void train(const std::function<void(int steps)>& after = [](int) {}) {
    int steps = 0;
    for (auto& batch : *loader) {
      train_on(batch.data, batch.target);
      after(++steps);
    }
  }
  // As no gradient tells of.
  void change_bias(double by) {
    const torch::NoGradGuard no_grad;
    net->second->bias.add_(by);
  }
  void scale_weight(double by) {
    const torch::NoGradGuard no_grad;
    net->first->weight.mul_(by);
  }

  Accelerator accelerator;
  std::shared_ptr<Mlp> net;
  std::shared_ptr<torch::optim::SGD> sgd;
  std::optional<PreparedModel<Mlp>> model;
  std::optional<PreparedOptimizer> optimizer;
  std::optional<decltype(std::declval<Accelerator&>().prepare(data_loader(replica_samples(), {})))>
      loader;
};

// Each rank its own numbers.
inline at::Tensor own_input(int rank) { return ones({2, 6}) * (rank + 1); }

}  // namespace accelerate::test
