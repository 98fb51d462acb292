// One process and several XLA devices: equal to one CPU on the whole batch.
#include <c10/util/intrusive_ptr.h>
#include <dlfcn.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <memory>

#include "base/environment.h"
#include "compat/xla/file_symbols.h"
#include "compat/xla/installation.h"
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

// How many pieces XLA itself says that dimension 0 of a tensor is cut into.
int pieces_of(const torch::Tensor& tensor) {
  struct StatusOr {  // of absl, without an error
    uintptr_t status;
    c10::intrusive_ptr<c10::intrusive_ptr_target> tensor;  // what an XLATensor derives from
  };
  using Sharding = std::shared_ptr<void>;  // a message of xla.OpSharding
  const auto library = compat::find_xla(compat::own_xla_search()).library;
  const auto found = compat::functions_in_symtab(
      library, dlopen(library.c_str(), RTLD_LAZY | RTLD_NOLOAD),
      {"_ZN9torch_xla6bridge12GetXlaTensorERKN2at6TensorE",
       "_ZNK9torch_xla9XLATensor13sharding_specEv",
       "_ZNK6google8protobuf11MessageLite17SerializeAsStringB5cxx11Ev"});
  const auto of_xla = reinterpret_cast<StatusOr (*)(const torch::Tensor&)>(found[0])(tensor);
  const auto sharding = reinterpret_cast<Sharding (*)(const void*)>(found[1])(of_xla.tensor.get());
  if (!sharding) return 1;
  const auto wire = reinterpret_cast<std::string (*)(const void*)>(found[2])(sharding.get());
  // Type OTHER, then the pieces of each dimension.
  return wire.starts_with("\x08\x03\x1a") ? wire.at(4) : 1;
}

TEST(XlaSpmd, CutsWhatItSays) {
  const int devices = devices_of_client();
  for (const bool shards : {false, true}) {
    Accelerator accelerator(
        {.device = "xla", .strategy = XlaSpmdOptions{.shard_parameters = shards}});
    auto dataset = test::readme_data(64 + 3);
    test::ReadmeNet net;
    auto batches = data_loader(dataset, {.batch_size = 64});
    auto [model, loader] = accelerator.prepare(net, batches);
    EXPECT_EQ(pieces_of(net->hidden->weight), shards ? devices : 1);
    EXPECT_EQ(pieces_of(net->out->weight), 1) << "less than 1024 numbers";
    std::vector<int> pieces;
    for (auto& batch : loader) pieces.push_back(pieces_of(batch.data));
    EXPECT_THAT(pieces, testing::ElementsAre(devices, 1)) << "3 rows are on every device";
  }
}

TEST(XlaSpmd, ABatchWithoutRowsIsOnEveryDevice) {
  const Accelerator accelerator(test::on_device("xla"));
  for (const auto& empty : {torch::ones({0, 4}), torch::ones({4, 0})}) {
    const auto brought = send_to_device(empty, accelerator.device());
    EXPECT_EQ(pieces_of(brought), 1);
    EXPECT_EQ((brought + 1).cpu().sizes(), empty.sizes());
  }
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
