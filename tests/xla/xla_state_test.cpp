// Checkpoints and random numbers of an XLA device.
#include <gmock/gmock.h>

#include <filesystem>

#include "device/device_backend.h"
#include "xla/xla_runs.h"

namespace accelerate {
namespace {

using test::on_device;

class XlaState : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "accelerate_xla_XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::filesystem::path folder_;
};

struct DropoutNetImpl : torch::nn::Module {
  torch::nn::Linear hidden{16, 64}, out{64, 2};
  torch::nn::Dropout drop;
  explicit DropoutNetImpl(double probability) : drop(probability) {
    register_module("hidden", hidden), register_module("out", out), register_module("drop", drop);
  }
  torch::Tensor forward(const torch::Tensor& x) { return out(drop(torch::relu(hidden(x)))); }
};
TORCH_MODULE(DropoutNet);

// Trains `steps` batches from wherever `folder` left off, if it is there, and saves before step
// `save_at`. Returns the losses.
struct Run {
  std::string device;
  double dropout = 0;
  int steps = 8;
  int save_at = -1;
  bool resume = false;
};

std::vector<double> losses_of(const Run& run, const std::filesystem::path& folder) {
  Accelerator accelerator(on_device(run.device));
  set_seed(5);
  auto dataset = test::readme_data(16 * 8);
  DropoutNet net(run.dropout);
  torch::optim::AdamW adamw(net->parameters(), 1e-2);
  auto batches = data_loader(dataset, {.batch_size = 16, .shuffle = true});
  auto [model, optimizer, loader] = accelerator.prepare(net, adamw, batches);
  if (run.resume) accelerator.load_state(folder);
  std::vector<double> losses;
  int step = 0;
  for (auto& batch : loader) {
    optimizer.zero_grad();
    auto loss = torch::nn::functional::cross_entropy(model(batch.data), batch.target);
    accelerator.backward(loss);
    optimizer.step();
    losses.push_back(loss.item<double>());
    if (++step == run.save_at) {
      optimizer.zero_grad();
      accelerator.save_state(folder);
    }
  }
  return losses;
}

TEST_F(XlaState, GoesOnWhereItWasSaved) {
  const auto whole = losses_of({.device = "xla", .dropout = 0.3, .save_at = 4}, folder_ / "state");
  const auto rest = losses_of({.device = "xla", .dropout = 0.3, .resume = true}, folder_ / "state");
  EXPECT_EQ(rest, std::vector<double>(whole.begin() + 4, whole.end()));  // to the last bit
}

TEST_F(XlaState, IsReadByTheCpuAndBack) {
  const auto whole = losses_of({.device = "xla", .save_at = 4}, folder_ / "state");
  const std::vector<double> expected(whole.begin() + 4, whole.end());
  test::expect_same_losses(losses_of({.device = "cpu", .resume = true}, folder_ / "state"),
                           expected, 1e-5);
  (void)losses_of({.device = "cpu", .save_at = 4}, folder_ / "of_cpu");
  test::expect_same_losses(losses_of({.device = "xla", .resume = true}, folder_ / "of_cpu"),
                           expected, 1e-5);
}

TEST_F(XlaState, SavesItsModelAsHostTensors) {
  Accelerator accelerator(on_device("xla"));
  test::ReadmeNet net;
  const auto weight = net->hidden->weight.detach().clone();
  auto model = accelerator.prepare(net);
  accelerator.save_model(model, folder_ / "model");
  test::ReadmeNet loaded;
  load_checkpoint_in_model(*loaded, folder_ / "model");
  EXPECT_TRUE(loaded->hidden->weight.equal(weight));
}

TEST_F(XlaState, SeedsDecideItsRandomNumbers) {
  const Accelerator accelerator(on_device("xla"));
  const auto drawn = [&](uint64_t seed) {
    set_seed(seed);
    return torch::rand({64}, accelerator.device()).cpu();
  };
  const auto first = drawn(7);
  EXPECT_TRUE(drawn(7).equal(first));
  EXPECT_FALSE(drawn(8).equal(first));
}

TEST_F(XlaState, ItsRandomStateIsReadOnTheCpuAlone) {
  const Accelerator accelerator(on_device("xla"));
  auto generator = device::device_backend(c10::kXLA).generator(accelerator.device());
  const auto state = generator.get_state();
  generator.set_state(state);
  EXPECT_THROW(generator.set_state(state.to(accelerator.device())), c10::Error);
}

TEST_F(XlaState, ItsRandomStateIsAnRngType) {
  const Accelerator accelerator(on_device("xla"));
  EXPECT_EQ(RngType("xla"), RngType::kXla);
  synchronize_rng_states(accelerator, {"torch", "xla"});  // one rank: nothing changes
  set_seed(7);
  const auto first = torch::rand({64}, accelerator.device()).cpu();
  set_seed(7);
  synchronize_rng_states(accelerator, {"xla"});
  EXPECT_TRUE(torch::rand({64}, accelerator.device()).cpu().equal(first));
}

}  // namespace
}  // namespace accelerate
