// One process and several XLA devices: equal to one CPU on the whole batch.
#include <gmock/gmock.h>

#include <algorithm>

#include "base/environment.h"
#include "xla/xla_runs.h"

namespace accelerate {
namespace {

int devices_of_client() { return std::stoi(environment_variable("CPU_NUM_DEVICES").value_or("1")); }

std::vector<double> losses_on(const std::string& device, const StrategyOptions& strategy = {},
                              int64_t samples = 64 * 10) {
  Accelerator accelerator({.device = device, .strategy = strategy});
  torch::manual_seed(0);
  auto dataset = test::readme_data(samples);
  test::ReadmeNet net;
  torch::optim::AdamW adamw(net->parameters(), 1e-2);
  auto batches = data_loader(dataset, {.batch_size = 64, .shuffle = true});
  auto [model, optimizer, loader] = accelerator.prepare(net, adamw, batches);
  std::vector<torch::Tensor> losses;
  for (auto& batch : loader) {
    optimizer.zero_grad();
    auto loss = torch::nn::functional::cross_entropy(model(batch.data), batch.target);
    accelerator.backward(loss);
    optimizer.step();
    losses.push_back(loss.detach());
  }
  std::vector<double> numbers;
  for (const auto& loss : losses) numbers.push_back(loss.item<double>());
  return numbers;
}

TEST(XlaSpmd, TrainsAsOneCpuOnTheWholeBatch) {
  const auto of_cpu = losses_on("cpu");
  const test::CompileCount count;
  test::expect_same_losses(losses_on("xla"), of_cpu, 1e-5);
  EXPECT_LE(count.compilations(), 2);
  EXPECT_THAT(count.on_the_host(), testing::IsEmpty());
}

TEST(XlaSpmd, IsOneProcessWhateverItsDevices) {
  const Accelerator accelerator(test::on_device("xla"));
  EXPECT_EQ(accelerator.num_processes(), 1);
  EXPECT_EQ(accelerator.strategy_name(), devices_of_client() == 1 ? "single" : "xla_spmd");
  EXPECT_EQ(compat::xla_devices_in_program(), devices_of_client());
  EXPECT_EQ(accelerator.state().gpu_count(), 1);
}

TEST(XlaSpmd, ComputesRowsThatCannotBeSharedOutOnEveryDevice) {
  constexpr int64_t kOdd = 64 * 2 + 3;
  test::expect_same_losses(losses_on("xla", {}, kOdd), losses_on("cpu", {}, kOdd), 1e-5);
}

TEST(XlaSpmd, ShardsParameters) {
  const auto of_cpu = losses_on("cpu");
  test::expect_same_losses(losses_on("xla", XlaSpmdOptions{.shard_parameters = true}), of_cpu,
                           1e-5);
}

}  // namespace
}  // namespace accelerate
