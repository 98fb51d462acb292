// The library on a kind of device that it does not know: all that differs comes from a
// DeviceBackend.
#include "unit/device/toy_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

#include "accelerate/accelerate.h"
#include "device/device_backend.h"
#include "device/generators.h"

namespace accelerate {
namespace {

using test::toy_calls;
using test::toy_device;

class ToyDevice : public testing::Test {
 protected:
  static void SetUpTestSuite() { test::install_toy_devices(); }
  // GPUs, where there are some, would be preferred.
  void SetUp() override { name_device("toy"); }
  void TearDown() override { unsetenv("ACCELERATE_TORCH_DEVICE"); }
  static void name_device(const char* name) { setenv("ACCELERATE_TORCH_DEVICE", name, 1); }
};

struct NetImpl : torch::nn::Module {
  torch::nn::Linear hidden{16, 64}, out{64, 2};
  NetImpl() { register_module("hidden", hidden), register_module("out", out); }
  torch::Tensor forward(const torch::Tensor& x) { return out(torch::relu(hidden(x))); }
};
TORCH_MODULE(Net);

// The loop of README.md. Returns the last loss of each epoch.
std::vector<double> train(Accelerator& accelerator) {
  torch::manual_seed(0);
  auto points = torch::randn({1024, 16});
  auto labels = points.sum(1).gt(0).to(torch::kLong);
  TensorDataset dataset(points, labels);

  Net net;
  torch::optim::AdamW adamw(net->parameters(), 1e-2);
  auto batches = data_loader(dataset, {.batch_size = 64, .shuffle = true});
  auto [model, optimizer, loader] = accelerator.prepare(net, adamw, batches);

  std::vector<double> losses;
  for (int epoch = 1; epoch <= 3; ++epoch) {
    torch::Tensor last_loss;
    for (auto& batch : progress(loader, accelerator)) {
      EXPECT_EQ(batch.data.device(), accelerator.device());
      optimizer.zero_grad();
      last_loss = torch::nn::functional::cross_entropy(model(batch.data), batch.target);
      accelerator.backward(last_loss);
      optimizer.step();
    }
    EXPECT_EQ(last_loss.device(), accelerator.device());
    auto mean = accelerator.reduce(last_loss, ReduceOp::kMean);
    losses.push_back(mean.item<double>());
  }
  EXPECT_EQ(net->hidden->weight.device(), accelerator.device());
  EXPECT_EQ(net->hidden->weight.grad().device(), accelerator.device());
  return losses;
}

TEST_F(ToyDevice, RunsTheLoopOfTheReadmeAsTheCpuDoes) {
  std::vector<double> of_cpu;
  {
    name_device("cpu");
    Accelerator accelerator;
    ASSERT_EQ(accelerator.device(), c10::Device(c10::kCPU));
    of_cpu = train(accelerator);
  }
  toy_calls().ends_of_step = 0;
  name_device("toy");
  Accelerator accelerator;
  ASSERT_EQ(accelerator.device(), toy_device(0));
  const std::vector<double> of_toy = train(accelerator);
  EXPECT_THAT(of_toy, testing::Pointwise(testing::DoubleNear(1e-6), of_cpu));
  EXPECT_LT(of_toy.back(), 0.3);
  EXPECT_EQ(toy_calls().ends_of_step, 3 * 1024 / 64);
}

TEST_F(ToyDevice, IsChosenByItsName) {
  EXPECT_EQ(ProcessState::from_environment().gpu_count(), test::kToyDevices);
  name_device("toy:1");
  EXPECT_EQ(ProcessState::from_environment().device(), toy_device(1));
  name_device("toy:2");
  try {
    (void)ProcessState::from_environment();
    ADD_FAILURE() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("'toy:2' is not a device of this machine, which "
                                                 "has"));
    EXPECT_THAT(error.what(), testing::HasSubstr("2 toy device(s)"));
    EXPECT_THAT(error.what(), testing::HasSubstr("toy or toy:N"));
  }
}

TEST_F(ToyDevice, IsPreferredToTheCpu) {
  if (device::device_backend(c10::kCUDA).count() > 0) GTEST_SKIP() << "GPUs are preferred";
  unsetenv("ACCELERATE_TORCH_DEVICE");
  EXPECT_EQ(ProcessState::from_environment().device(), toy_device(0));
}

TEST_F(ToyDevice, CountsItsMemory) {
  toy_calls().synchronizations = 0;
  const MemoryTracker tracker("block", c10::DeviceType::PrivateUse1);
  const at::Tensor kept = at::zeros({256}, toy_device());
  (void)at::zeros({4096}, toy_device());
  const MemoryReport report = tracker.report();
  ASSERT_TRUE(report.device_memory);
  EXPECT_EQ(report.device, toy_device(0));
  EXPECT_EQ(report.device_memory->used_bytes(), 256 * 4);
  EXPECT_GE(report.device_memory->peaked_bytes(), 4096 * 4);
  EXPECT_EQ(toy_calls().synchronizations, 2);
}

TEST_F(ToyDevice, EmptiesItsCaches) {
  toy_calls().emptied_caches = 0;
  clear_device_cache();
  EXPECT_EQ(toy_calls().emptied_caches, 1);
  Accelerator().free_memory();
  EXPECT_EQ(toy_calls().emptied_caches, 2);
}

std::vector<int64_t> seeds_of_toys() {
  std::vector<int64_t> seeds;
  for (const at::Generator& generator :
       device::device_backend(c10::DeviceType::PrivateUse1).generators()) {
    seeds.push_back(static_cast<int64_t>(generator.current_seed()));
  }
  return seeds;
}

TEST_F(ToyDevice, IsSeededWithTheOthers) {
  set_seed(1234);
  EXPECT_THAT(seeds_of_toys(), testing::ElementsAre(1234, 1234));
}

TEST_F(ToyDevice, SavesItsGeneratorsAndGetsThemBack) {
  const auto folder = std::filesystem::temp_directory_path() / "accelerate_toy_XXXXXX";
  std::string name = folder.string();
  ASSERT_NE(mkdtemp(name.data()), nullptr);
  Accelerator accelerator;
  for (const int index : {0, 1}) {
    device::seed_generator(
        device::device_backend(c10::DeviceType::PrivateUse1).generator(toy_device(index)),
        static_cast<uint64_t>(70 + index));
  }
  accelerator.save_state(name + "/state");
  set_seed(5);
  accelerator.load_state(name + "/state");
  EXPECT_THAT(seeds_of_toys(), testing::ElementsAre(70, 71));
  const TorchValue states = load_torch_archive(name + "/state/random_states_0.pkl");
  EXPECT_EQ(states.as_dict().at("torch_toy_manual_seed").as_sequence().size(), 2U);
  std::filesystem::remove_all(name);
}

TEST_F(ToyDevice, SaysWhyStepsAreNotRecorded) {
  Accelerator accelerator;
  auto step = accelerator.capture(
      [](const std::vector<at::Tensor>& inputs) { return std::vector<at::Tensor>{inputs[0] + 1}; });
  EXPECT_EQ(step.fallback_reason(), "devices of type toy record no graphs");
  EXPECT_EQ(step({at::zeros({1}, toy_device())})[0].item<float>(), 1);
}

TEST_F(ToyDevice, RefusesAutocastWhichItDoesNotSay) {
  const auto cast = [] { const Autocast autocast(c10::DeviceType::PrivateUse1, at::kBFloat16); };
  EXPECT_THROW(cast(), UsageError);
}

TEST_F(ToyDevice, ClipsGradients) {
  Accelerator accelerator;
  Net net;
  auto model = accelerator.prepare(net);
  accelerator.backward(model(at::ones({4, 16}, toy_device())).sum());
  const double norm = accelerator.clip_grad_norm_(net->parameters(), 0.5).item<double>();
  EXPECT_GT(norm, 0.5);
  EXPECT_NEAR(accelerator.clip_grad_norm_(net->parameters(), 0.5).item<double>(), 0.5, 1e-4);
}

}  // namespace
}  // namespace accelerate
