// Mistakes of the program that calls, which must not cost anybody's work.
#include <algorithm>

#include "multiproc/accumulation.h"
#include "multiproc/loading.h"
#include "multiproc/resume_training.h"

namespace accelerate::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

struct StateMistakes : Ranks {
  StateFolder folder;

  AcceleratorOptions numbered(std::optional<int64_t> total_limit = {}) const {
    AcceleratorOptions options = on_cpu();
    options.project = {.project_dir = folder.path(),
                       .automatic_checkpoint_naming = true,
                       .total_limit = total_limit};
    return options;
  }
  std::vector<std::string> checkpoints() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder / "checkpoints")) {
      names.push_back(entry.path().filename().string());
    }
    std::ranges::sort(names);
    return names;
  }
};

TEST_F(StateMistakes, ANewRunDoesNotMixWithTheCheckpointsOfAnOldOne) {
  run(2, [&](const Rank&) {
    {
      Accelerator accelerator(numbered(2));
      auto model = accelerator.prepare(std::make_shared<Mlp>());
      for (int i = 0; i < 4; ++i) accelerator.save_state();
    }
    Accelerator accelerator(numbered(2));
    auto model = accelerator.prepare(std::make_shared<Mlp>());
    EXPECT_THAT(thrown_by<CheckpointError>([&] { accelerator.save_state(); }),
                HasSubstr("that this run has neither written nor loaded"));
    EXPECT_THAT(checkpoints(), ElementsAre("checkpoint_2", "checkpoint_3"));
    accelerator.load_state();
    accelerator.save_state();
    EXPECT_THAT(checkpoints(), ElementsAre("checkpoint_3", "checkpoint_4"));
  });
}

// The others have nothing to complain of, and would wait for it.
TEST_F(StateMistakes, WhatIsWrongOnOneRankIsThrownOnAllAndAllGoOn) {
  run(2, [&](const Rank& rank) {
    PreparedMlp mlp(accumulating({.steps = 2}));
    Accelerator& accelerator = mlp.accelerator;
    {
      const auto micro_batch = accelerator.accumulate(mlp.model);
      accelerator.backward(mlp.model(ones({2, 6})).sum());
    }
    std::vector<at::Tensor> gradients;
    for (const at::Tensor& parameter : mlp.net->parameters()) {
      gradients.push_back(parameter.grad().clone());
    }
    if (rank.rank == 1) mlp.net->zero_grad(/*set_to_none=*/false);
    EXPECT_THAT(usage_error([&] { accelerator.save_state(folder / "state"); }),
                AllOf(HasSubstr("[rank 1 of 2]"), HasSubstr("were set to zero in place")));

    for (size_t i = 0; i < gradients.size(); ++i) {
      mlp.net->parameters()[i].mutable_grad().copy_(gradients[i]);
    }
    torch::optim::Optimizer& converted = mlp.optimizer;
    if (rank.rank == 1) {
      converted.param_groups()[0].options().set_lr(0.2);
      mlp.sgd.param_groups()[0].options().set_lr(0.3);
    }
    EXPECT_THAT(usage_error([&] { accelerator.save_state(folder / "state"); }),
                AllOf(HasSubstr("[rank 1 of 2]"), HasSubstr("lr")));
    EXPECT_THAT(usage_error([&] { accelerator.load_state(folder / "state"); }),
                AllOf(HasSubstr("[rank 1 of 2]"), HasSubstr("lr")));
    converted.param_groups()[0].options().set_lr(0.1);
    mlp.sgd.param_groups()[0].options().set_lr(0.1);
    accelerator.save_state(folder / "state");
    EXPECT_EQ(accelerator.load_state(folder / "state"), folder / "state");
  });
}

TEST_F(StateMistakes, ACheckpointThatHasLostItsManifestIsNotTakenForOneOfPython) {
  run(2, [&](const Rank& rank) {
    Accelerator accelerator(numbered());
    auto model = accelerator.prepare(std::make_shared<Mlp>());
    accelerator.save_state();
    accelerator.save_state();
    const auto newest = folder / "checkpoints" / "checkpoint_1";
    if (rank.rank == 0) std::filesystem::remove(newest / "manifest.json");
    accelerator.wait_for_everyone();
    EXPECT_THAT(thrown_by<CheckpointError>([&] { accelerator.load_state(newest); }),
                HasSubstr("it has no manifest.json"));
    EXPECT_EQ(accelerator.load_state(newest, {.fall_back = true}),
              folder / "checkpoints" / "checkpoint_0");
    if (rank.rank == 0) {
      std::filesystem::remove(folder / "checkpoints" / "checkpoint_0" / "manifest.json");
    }
    accelerator.wait_for_everyone();
    EXPECT_THAT(thrown_by<CheckpointError>([&] { accelerator.load_state(); }),
                HasSubstr("it has no manifest.json"));
  });
}

TEST_F(StateMistakes, RanksThatSaveWithOtherOptionsAreToldSo) {
  run(3, [&](const Rank& rank) {
    Accelerator accelerator(on_cpu());
    auto model = accelerator.prepare(std::make_shared<Mlp>());
    const auto save = [&](const std::string& name, const SaveOptions& options) {
      return thrown_by<UsageError>([&] { accelerator.save_state(folder / name, options); });
    };
    EXPECT_THAT(save("a", {.async = rank.rank == 2}),
                HasSubstr(".async is false on rank 0 and true on rank 2"));
    EXPECT_THAT(save(rank.rank == 1 ? "b" : "a", {}), HasSubstr("the directory is"));
    CheckpointFunctions nothing{.state_dict = [] { return StateDict(); },
                                .load_state_dict = [](const StateDict&) {}};
    if (rank.rank == 0) accelerator.register_for_checkpointing(nothing);
    EXPECT_THAT(save("a", {}),
                HasSubstr("the number of registered objects is 1 on rank 0 and 0 on rank 1"));
    EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  });
}

TEST_F(StateMistakes, AHookThatFailsIsNamed) {
  run(2, [&](const Rank& rank) {
    Accelerator accelerator(on_cpu());
    auto model = accelerator.prepare(std::make_shared<Mlp>());
    accelerator.register_save_state_pre_hook([&](auto&, const auto&) {
      if (rank.rank == 1) throw std::runtime_error("no ink");
    });
    EXPECT_THAT(
        thrown_by<CheckpointError>([&] { accelerator.save_state(folder / "a"); }),
        testing::AllOf(HasSubstr("a save hook failed: no ink"), HasSubstr("of save_state")));
    EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  });
}

}  // namespace
}  // namespace accelerate::test
