// Prepared optimizers in functions that take a torch::optim::Optimizer.
#include "multiproc/accumulation.h"

namespace accelerate::test {
namespace {

using testing::HasSubstr;

struct ConvertedOptimizerOn : AccumulationOn {};
INSTANTIATE_TEST_SUITE_P(Ranks, ConvertedOptimizerOn, testing::Values(1, 2),
                         [](const auto& info) { return std::to_string(info.param); });

constexpr int64_t kMicroBatches = 4;

double rate_of(torch::optim::Optimizer& optimizer) {
  return static_cast<torch::optim::AdamWOptions&>(optimizer.param_groups()[0].options()).lr();
}

// As a program of libtorch has it, but for the loss: each update halves the rate.
template <class Backward>
void train_with_libtorch(torch::optim::Optimizer& optimizer, const Backward& backward,
                         bool updates) {
  optimizer.zero_grad();
  backward();
  optimizer.step();
  if (!updates) return;
  for (auto& group : optimizer.param_groups()) {
    auto& options = static_cast<torch::optim::AdamWOptions&>(group.options());
    options.lr(options.lr() * 0.5);
  }
}

TEST_P(ConvertedOptimizerOn, AFunctionForLibtorchTrainsInWindows) {
  run_ranks([](const Rank& rank) {
    const int64_t rows = 2 * kMicroBatches * rank.world_size;
    Accelerator accelerator(accumulating({.steps = kMicroBatches}));
    auto net = fresh_net();
    auto expected = fresh_net();
    torch::optim::AdamW adamw(net->parameters(), 0.1);
    torch::optim::AdamW plain(expected->parameters(), 0.1);
    auto [model, optimizer] = accelerator.prepare(net, adamw);
    for (int step = 0; step < 3; ++step) {
      const StepData data = data_of_step(step, rows);
      for (int64_t i = 0; i < kMicroBatches; ++i) {
        const auto micro_batch = accelerator.accumulate(model);
        const auto part = [&](const at::Tensor& all) {
          return all.narrow(0, 2 * (i * rank.world_size + rank.rank), 2);
        };
        train_with_libtorch(
            optimizer,
            [&, &model = model] {
              accelerator.backward(loss_of(model(part(data.input)), part(data.target)));
            },
            accelerator.sync_gradients());
      }
      train_with_libtorch(
          plain, [&] { loss_of(expected->forward(data.input), data.target).backward(); }, true);
    }
    EXPECT_EQ(optimizer.step_count(), 3);
    EXPECT_TRUE(near(flat(net->parameters()), flat(expected->parameters())));
    accelerator.wait_for_everyone();
    EXPECT_EQ(rate_of(optimizer), 0.0125);
    EXPECT_EQ(rate_of(adamw), 0.0125);
  });
}

TEST_P(ConvertedOptimizerOn, SchedulersOfBothLibrariesMoveItAtThePaceOfTheWindows) {
  run_ranks([](const Rank&) {
    for (const bool of_torch : {false, true}) {
      AcceleratorOptions options = accumulating({.steps = 2});
      options.scheduler.pace = SchedulerPace::kPerOptimizerStep;
      Accelerator accelerator(options);
      auto net = fresh_net();
      torch::optim::AdamW adamw(net->parameters(), 0.1);
      auto [model, optimizer] = accelerator.prepare(net, adamw);
      torch::optim::StepLR halving(optimizer, 1, 0.5);
      auto scheduler =
          of_torch ? accelerator.prepare(halving)
                   : accelerator.prepare(Scheduler(optimizer, exponential_lr({.gamma = 0.5})));
      torch::optim::Optimizer& converted = optimizer;
      const StepData data = data_of_step(0, kRows);
      for (int i = 0; i < 6; ++i) {
        const auto micro_batch = accelerator.accumulate(model);
        accelerator.backward(loss_of(model(data.input), data.target));
        converted.step();
        scheduler.step();
        converted.zero_grad();
      }
      // The first step of torch's schedule only begins it.
      const double expected = of_torch ? 0.025 : 0.0125;
      EXPECT_EQ(rate_of(converted), expected) << of_torch;
      EXPECT_EQ(rate_of(adamw), expected) << of_torch;
    }
  });
}

TEST_P(ConvertedOptimizerOn, IsNotPreparedASecondTime) {
  run_ranks([](const Rank&) {
    Accelerator accelerator(on_cpu());
    auto net = fresh_net();
    torch::optim::AdamW adamw(net->parameters(), 0.1);
    auto [model, optimizer] = accelerator.prepare(net, adamw);
    torch::optim::Optimizer& converted = optimizer;
    EXPECT_THAT(usage_error([&] { std::ignore = accelerator.prepare(converted); }),
                HasSubstr("that prepare() returned"));
  });
}

}  // namespace
}  // namespace accelerate::test
