// The loop of README.md on an XLA device: unchanged, equal to the CPU, compiled twice.
#include <gmock/gmock.h>
#include <stdlib.h>

#include <functional>

#include "xla/xla_runs.h"

namespace accelerate {
namespace {

using test::CompileCount;
using test::expect_same_losses;
using test::on_device;
using test::ReadmeNet;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(XlaDevice, IsChosenByItsName) {
  const Accelerator accelerator(on_device("xla"));
  EXPECT_EQ(accelerator.device(), c10::Device("xla:0"));
  EXPECT_EQ(accelerator.distributed_type(), DistributedType::kXla);
  EXPECT_EQ(to_string(accelerator.distributed_type()), "XLA");
  EXPECT_EQ(accelerator.num_processes(), 1);
  EXPECT_EQ(accelerator.strategy_name(), "single");
  setenv("ACCELERATE_USE_XLA", "true", 1);  // accelerate launch --tpu
  EXPECT_EQ(Accelerator().device(), c10::Device("xla:0"));
  unsetenv("ACCELERATE_USE_XLA");
  // Another accelerator of the process is not drawn there.
  EXPECT_NE(Accelerator().device().type(), c10::kXLA);
}

// The last loss of each epoch.
std::vector<double> train(const AcceleratorOptions& options) {
  Accelerator accelerator(options);
  torch::manual_seed(0);
  auto dataset = test::readme_data(1024);
  ReadmeNet net;
  torch::optim::AdamW adamw(net->parameters(), 1e-2);
  auto batches = data_loader(dataset, {.batch_size = 64, .shuffle = true});
  auto [model, optimizer, loader] = accelerator.prepare(net, adamw, batches);

  std::vector<double> losses;
  for (int epoch = 1; epoch <= 3; ++epoch) {
    torch::Tensor last_loss;
    for (auto& batch : progress(loader, accelerator)) {
      optimizer.zero_grad();
      last_loss = torch::nn::functional::cross_entropy(model(batch.data), batch.target);
      accelerator.backward(last_loss);
      optimizer.step();
    }
    auto mean = accelerator.reduce(last_loss, ReduceOp::kMean);
    losses.push_back(mean.item<double>());
  }
  EXPECT_EQ(net->hidden->weight.device(), accelerator.device());
  return losses;
}

TEST(XlaLoop, IsThatOfTheReadmeAndEqualToTheCpu) {
  const std::vector<double> of_cpu = train(on_device("cpu"));
  const CompileCount count;
  const std::vector<double> of_xla = train(on_device("xla"));
  expect_same_losses(of_xla, of_cpu, 1e-5);
  EXPECT_LT(of_xla.back(), 0.3);
  EXPECT_LE(count.compilations(), 3);  // the first step, all others, and nothing of the loss
  EXPECT_THAT(count.on_the_host(), IsEmpty());
}

TEST(XlaLoop, RunsInANotebookLauncher) {
  const auto losses =
      notebook_launcher([] { return train(on_device("xla")).back(); }, {.num_processes = 1});
  ASSERT_EQ(losses.size(), 1U);
  EXPECT_LT(losses[0], 0.3);
}

// A training of `steps` updates whose loop does what `options` say. Returns all losses.
struct Loop {
  std::function<std::unique_ptr<torch::optim::Optimizer>(const std::vector<at::Tensor>&)> optimizer;
  int64_t samples = 640;
  double max_norm = 0;
  bool has_schedule = false;
  bool drop_last = false;
};

std::vector<double> losses_of(const Loop& loop, const AcceleratorOptions& options) {
  Accelerator accelerator(options);
  torch::manual_seed(1);
  auto dataset = test::readme_data(loop.samples);
  ReadmeNet net;
  auto batches =
      data_loader(dataset, {.batch_size = 64, .shuffle = true, .drop_last = loop.drop_last});
  auto made = loop.optimizer(net->parameters());
  torch::optim::StepLR decay(*made, 2, 0.5);
  auto [model, optimizer, loader, schedule] =
      accelerator.prepare(net, std::move(made), batches, decay);
  std::vector<torch::Tensor> losses;
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : loader) {
      auto scope = accelerator.accumulate(model);
      auto loss = torch::nn::functional::cross_entropy(model(batch.data), batch.target);
      accelerator.backward(loss);
      if (loop.max_norm > 0 && accelerator.sync_gradients()) {
        accelerator.clip_grad_norm_(net->parameters(), loop.max_norm);
      }
      optimizer.step();
      if (loop.has_schedule) schedule.step();
      optimizer.zero_grad();
      losses.push_back(loss.detach());
    }
  }
  std::vector<double> numbers;
  for (const auto& loss : losses) numbers.push_back(loss.item<double>());
  return numbers;
}

// On both devices: equal, and compiled no more than `programs` times.
void expect_equal_on_both(const Loop& loop, const AcceleratorOptions& how, int64_t programs,
                          double tolerance = 1e-5) {
  AcceleratorOptions options = how;
  options.device = "cpu";
  const std::vector<double> of_cpu = losses_of(loop, options);
  options.device = "xla";
  const CompileCount count;
  expect_same_losses(losses_of(loop, options), of_cpu, tolerance);
  EXPECT_LE(count.compilations(), programs);
  EXPECT_THAT(count.on_the_host(), IsEmpty());
}

template <class Optimizer, class Options>
Loop with_optimizer(Options options) {
  return {.optimizer = [options](const std::vector<at::Tensor>& parameters) {
    return std::make_unique<Optimizer>(parameters, options);
  }};
}
Loop with_adamw() { return with_optimizer<torch::optim::AdamW>(torch::optim::AdamWOptions(1e-2)); }

TEST(XlaLoop, EachOptimizerIsCompiledTwice) {
  expect_equal_on_both(with_adamw(), {}, 2);
  expect_equal_on_both(with_optimizer<torch::optim::Adam>(torch::optim::AdamOptions(1e-2)), {}, 2);
  expect_equal_on_both(
      with_optimizer<torch::optim::SGD>(torch::optim::SGDOptions(0.1).momentum(0.9)), {}, 2);
  expect_equal_on_both(with_optimizer<torch::optim::RMSprop>(torch::optim::RMSpropOptions(1e-3)),
                       {}, 2);
  expect_equal_on_both(with_optimizer<torch::optim::Adagrad>(torch::optim::AdagradOptions(1e-2)),
                       {}, 2);
}

TEST(XlaLoop, ClipsWithoutAnotherCut) {
  Loop loop = with_adamw();
  loop.max_norm = 0.1;
  expect_equal_on_both(loop, {}, 2);
}

TEST(XlaLoop, FollowsASchedule) {
  Loop loop = with_adamw();
  loop.has_schedule = true;
  expect_equal_on_both(loop, {}, 2);
}

TEST(XlaLoop, AccumulatesOverMicroBatches) {
  expect_equal_on_both(with_adamw(), {.gradient_accumulation = {.steps = 5}}, 2);
}

TEST(XlaLoop, ComputesInBfloat16) {
  expect_equal_on_both(with_adamw(), {.mixed_precision = "bf16"}, 2, 2e-2);
}

TEST(XlaLoop, RefusesFp16) {
  try {
    const Accelerator accelerator({.device = "xla", .mixed_precision = "fp16"});
    ADD_FAILURE() << "accepted";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("autocast cannot compute in Half on xla"));
  }
}

TEST(XlaLoop, SaysWhenAShortBatchIsCompiledAnew) {
  Loop loop = with_adamw();
  loop.samples = 640 + 7;
  testing::internal::CaptureStderr();
  (void)losses_of(loop, on_device("xla"));
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("XLA compiled step 11 anew"));
  loop.drop_last = true;
  testing::internal::CaptureStderr();
  (void)losses_of(loop, on_device("xla"));
  EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::Not(HasSubstr("anew")));
}

TEST(XlaLoop, EvaluatesBatchByBatch) {
  Accelerator accelerator(on_device("xla"));
  torch::manual_seed(2);
  auto dataset = test::readme_data(64 * 6 + 5);
  ReadmeNet net;
  auto batches = data_loader(dataset, {.batch_size = 64});
  auto [model, loader] = accelerator.prepare(net, batches);
  const torch::NoGradGuard no_grad;
  net->eval();
  const CompileCount count;
  std::vector<torch::Tensor> guesses;
  for (auto& batch : loader) {
    guesses.push_back(accelerator.gather_for_metrics(model(batch.data).argmax(1)));
  }
  EXPECT_EQ(torch::cat(guesses).cpu().size(0), 64 * 6 + 5);
  // Full batches, the short one, and putting them together.
  EXPECT_LE(count.compilations(), 3);
  EXPECT_THAT(count.on_the_host(), IsEmpty());
}

}  // namespace
}  // namespace accelerate
