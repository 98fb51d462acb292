// Checkpoints to and from a GPU. Skipped, visibly, where there is none.
#include <accelerate/model_files.h>
#include <accelerate/safetensors.h>

#include "checkpoint/state/snapshot.h"
#include "device/cuda_plugin.h"
#include "multiproc/resume_training.h"

namespace accelerate::test {
namespace {

// Asked in a rank: the test program itself must not start the threads of a GPU's driver.
struct GpuRanks : Ranks {
  void SetUp() override {
    run(1, [](const Rank&) {
      if (device::cuda_plugin() == nullptr || device::cuda_plugin()->device_count() == 0) {
        GTEST_SKIP() << "no GPU";
      }
    });
  }
};

constexpr int kMicroBatches = 9;

std::vector<double> rest(const std::vector<double>& losses, int done) {
  return {losses.begin() + done, losses.end()};
}

struct CudaResume : GpuRanks, testing::WithParamInterface<std::tuple<int, ResumeCase>> {};

INSTANTIATE_TEST_SUITE_P(
    Ranks, CudaResume,
    testing::Combine(testing::Values(1, 2),
                     testing::Values(ResumeCase{.optimizer = "sgd", .gpu = true},
                                     ResumeCase{.accumulation = 3, .gpu = true},
                                     ResumeCase{.accumulation = 3, .fp16 = true, .gpu = true})),
    [](const auto& info) {
      const ResumeCase& what = std::get<1>(info.param);
      return std::to_string(std::get<0>(info.param)) + "_" + what.optimizer + "_window" +
             std::to_string(what.accumulation) + (what.fp16 ? "_fp16" : "");
    });

TEST_P(CudaResume, FromAnyMicroBatchIsTheSameAsNotHavingStopped) {
  const auto& [ranks, what] = GetParam();
  const StateFolder folder;
  run(ranks, [&folder, what = what](const Rank&) {
    ResumeTraining whole(what, 7);
    const std::vector<double> losses = whole.train(0, kMicroBatches);
    const std::vector<double> end = whole.fingerprint();
    ResumeTraining saving(what, 7);
    saving.train(0, kMicroBatches,
                 [&](int done) { saving.accelerator().save_state(folder / std::to_string(done)); });
    for (int done = 1; done <= kMicroBatches; ++done) {
      ResumeTraining resumed(what, 1000);
      resumed.accelerator().load_state(folder / std::to_string(done));
      EXPECT_EQ(resumed.train(done, kMicroBatches), rest(losses, done)) << "from " << done;
      EXPECT_EQ(resumed.fingerprint(), end) << "from " << done;
    }
  });
}

TEST_P(CudaResume, AnAsynchronousSaveHoldsTheStateOfTheMoment) {
  const auto& [ranks, what] = GetParam();
  const StateFolder folder;
  run(ranks, [&folder, what = what](const Rank&) {
    ResumeTraining whole(what, 7);
    const std::vector<double> losses = whole.train(0, kMicroBatches);
    ResumeTraining saving(what, 7);
    std::vector<SaveTicket> tickets;
    const auto while_saving = saving.train(0, kMicroBatches, [&](int done) {
      tickets.push_back(
          saving.accelerator().save_state(folder / std::to_string(done), {.async = true}));
    });
    EXPECT_EQ(while_saving, losses);
    for (const SaveTicket& ticket : tickets) ticket.wait();
    for (const int done : {1, 5, 8}) {
      ResumeTraining resumed(what, 1000);
      resumed.accelerator().load_state(folder / std::to_string(done));
      EXPECT_EQ(resumed.train(done, kMicroBatches), rest(losses, done)) << "from " << done;
    }
  });
}

struct CudaCheckpoint : GpuRanks {};

// What the state says about a training that may go on on another kind of device.
std::vector<double> carried_over(ResumeTraining& training) {
  std::vector<double> all = flat(training.net()->parameters());
  for (const at::Tensor& parameter : training.net()->parameters()) {
    const auto& states = training.optimizer().optimizer().state();
    const auto& state = static_cast<const torch::optim::AdamWParamState&>(
        *states.at(parameter.unsafeGetTensorImpl()));
    EXPECT_EQ(state.exp_avg().device(), parameter.device());
    const std::vector<double> moments = flat({state.exp_avg(), state.exp_avg_sq()});
    all.insert(all.end(), moments.begin(), moments.end());
  }
  return all;
}

TEST_F(CudaCheckpoint, StatesMoveBetweenGpuAndCpu) {
  for (const bool from_gpu : {true, false}) {
    const StateFolder folder;
    const auto saved = run_collect(1, [&](const Rank&) {
      ResumeTraining training({.gpu = from_gpu}, 7);
      training.train(0, 4);
      training.accelerator().save_state(folder / "state");
      return carried_over(training);
    })[0];
    const auto loaded = run_collect(1, [&](const Rank&) {
      ResumeTraining training({.gpu = !from_gpu}, 1000);
      training.accelerator().load_state(folder / "state");
      EXPECT_EQ(training.net()->parameters()[0].is_cuda(), !from_gpu);
      return carried_over(training);
    })[0];
    EXPECT_EQ(loaded, saved) << (from_gpu ? "from the GPU" : "from the CPU");
  }
}

TEST_F(CudaCheckpoint, AStateOfTheCpuGivesTheGpuOfEachRankAStreamOfItsOwn) {
  const StateFolder folder;
  run(2, [&](const Rank&) {
    ResumeTraining training({}, 7);
    training.train(0, 2);
    training.accelerator().save_state(folder / "state");
  });
  const auto draw = [&](const Rank&) {
    ResumeTraining training({.gpu = true}, 1000);
    torch::manual_seed(1);  // alike on both ranks
    training.accelerator().load_state(folder / "state");
    return flat({torch::rand({4}, c10::kCUDA)});
  };
  const auto drawn = run_collect(2, draw);
  EXPECT_NE(drawn[0], drawn[1]);
  EXPECT_EQ(run_collect(2, draw), drawn);
}

TEST_F(CudaCheckpoint, AnOptimizerIsSavedWithoutAStepThatTurnsOutToBeSkipped) {
  const StateFolder folder;
  run(1, [&](const Rank&) {
    Accelerator accelerator({.mixed_precision = "fp16", .grad_scaler = {.init_scale = 8}});
    auto net = std::make_shared<torch::nn::LinearImpl>(3, 1);
    torch::optim::Adam adam(net->parameters(), 0.1);
    auto [model, optimizer] = accelerator.prepare(net, adam);
    const auto step = [&, &model = model, &optimizer = optimizer](double factor) {
      accelerator.backward(model(torch::ones({2, 3}, c10::kCUDA)).sum() * factor);
      optimizer.step();
      optimizer.zero_grad();
    };
    const auto steps_of = [&](const torch::optim::Adam& of) {
      const auto& state = *of.state().at(net->weight.unsafeGetTensorImpl());
      return static_cast<const torch::optim::AdamParamState&>(state).step();
    };
    const std::string file = (folder / "adam.pt").string();
    step(1);
    step(std::numeric_limits<double>::infinity());
    torch::optim::Optimizer& converted = optimizer;
    torch::save(converted, file);
    EXPECT_EQ(steps_of(adam), 1);
    step(1);
    step(std::numeric_limits<double>::infinity());
    torch::load(converted, file);  // what is loaded stays, though the last step was skipped
    EXPECT_TRUE(optimizer.step_was_skipped());
    EXPECT_EQ(steps_of(adam), 1);
  });
}

TEST_F(CudaCheckpoint, ASnapshotOfTheGpuIsPageLockedAndComplete) {
  run(1, [](const Rank&) {
    device::cuda_plugin();  // loads what libtorch needs for a GPU
    const at::Tensor values = torch::randn({1000, 1000}, at::kCUDA);
    checkpoint::Snapshot snapshot(true);
    snapshot.add("model.safetensors", [&] {
      NamedTensors tensors;
      tensors.insert("values", values);
      tensors.insert("turned", values.t());
      return tensors;
    }());
    const at::Tensor before = values.cpu();
    checkpoint::HostBuffers buffers;
    snapshot.copy_to_host(buffers);
    values.zero_();
    const auto& copies = std::get<checkpoint::TensorsFile>(snapshot.files()[0].content).tensors;
    EXPECT_TRUE(copies["values"].is_pinned());
    EXPECT_TRUE(torch::equal(copies["values"], before));
    EXPECT_TRUE(torch::equal(copies["turned"], before.t()));
  });
}

TEST_F(CudaCheckpoint, ModelsGoFromTheGpuIntoFilesAndBack) {
  const StateFolder folder;
  run(1, [&](const Rank&) {
    device::cuda_plugin();  // loads what libtorch needs for a GPU
    torch::manual_seed(1);
    DropoutNet net(false);
    save_model(net, folder / "cpu");
    net.to(at::kCUDA);
    save_model(net, folder / "gpu");
    const SafetensorsFile file(folder / "gpu" / "model.safetensors");
    const SafetensorsFile same(folder / "cpu" / "model.safetensors");
    ASSERT_EQ(file.names(), same.names());
    for (const std::string& name : file.names()) {
      EXPECT_TRUE(torch::equal(file.tensor(name), same.tensor(name))) << name;
      const at::Tensor on_gpu = file.tensor(name, at::Device("cuda:0"));
      EXPECT_TRUE(on_gpu.is_cuda());
      EXPECT_TRUE(torch::equal(on_gpu.cpu(), same.tensor(name))) << name;
    }
    torch::manual_seed(2);
    DropoutNet other(false);
    load_checkpoint_and_dispatch(other, folder / "gpu",
                                 {.strict = true, .device_map = {{"", at::Device("cuda:0")}}});
    EXPECT_TRUE(other.first->weight.is_cuda());
    EXPECT_EQ(flat(other.parameters()), flat(net.parameters()));
    EXPECT_EQ(flat(other.buffers()), flat(net.buffers()));
  });
}

}  // namespace
}  // namespace accelerate::test
