// Names, numbers and limits of checkpoints, and which of them is loaded.
#include <fstream>

#include "multiproc/loading.h"
#include "multiproc/resume_training.h"

namespace accelerate::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct StateProject : Ranks {
  StateFolder folder;

  ProjectOptions project(std::optional<int64_t> total_limit = {}) const {
    return {.project_dir = folder.path(),
            .automatic_checkpoint_naming = true,
            .total_limit = total_limit};
  }
};

AcceleratorOptions with(const ProjectOptions& project) {
  AcceleratorOptions options = on_cpu();
  options.project = project;
  return options;
}

std::vector<std::string> sorted_names(const std::filesystem::path& directory) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    names.push_back(entry.path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

// Changes one byte of the last tensor.
void damage(const std::filesystem::path& file) {
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  const auto place = static_cast<std::streamoff>(std::filesystem::file_size(file) - 3);
  stream.seekg(place);
  const char byte = static_cast<char>(stream.get() ^ 1);
  stream.seekp(place);
  stream.put(byte);
}

TEST_F(StateProject, CheckpointsAreNumberedAndTheNewestIsLoaded) {
  run(2, [&](const Rank&) {
    ResumeTraining training({}, 7, project());
    std::vector<std::vector<double>> weights;
    training.train(0, 3, [&](int done) {
      const SaveTicket ticket = training.accelerator().save_state();
      EXPECT_TRUE(ticket.done());
      EXPECT_EQ(ticket.directory(),
                folder / "checkpoints" / ("checkpoint_" + std::to_string(done - 1)));
      weights.push_back(flat(training.net()->parameters()));
    });
    EXPECT_EQ(training.accelerator().save_iteration(), 3);
    ResumeTraining resumed({}, 1000, project());
    EXPECT_EQ(resumed.accelerator().load_state(), folder / "checkpoints" / "checkpoint_2");
    EXPECT_EQ(flat(resumed.net()->parameters()), weights[2]);
    EXPECT_EQ(resumed.accelerator().save_iteration(), 3);
    // An older one: what came after it is not overwritten.
    resumed.accelerator().load_state(folder / "checkpoints" / "checkpoint_0");
    EXPECT_EQ(flat(resumed.net()->parameters()), weights[0]);
    EXPECT_EQ(resumed.accelerator().save_iteration(), 3);
    resumed.accelerator().set_save_iteration(1);
    EXPECT_THAT(thrown_by<CheckpointError>([&] { resumed.accelerator().save_state(); }),
                HasSubstr("that this run has neither written nor loaded"));
  });
}

TEST_F(StateProject, ANewerCheckpointThatIsNotCompleteIsToldOf) {
  spawn(2, [&](const Rank& rank) {
    ResumeTraining training({}, 7, project());
    training.train(0, 3, [&](int) { training.accelerator().save_state(); });
    training.accelerator().wait_for_everyone();
    if (rank.rank == 0) {
      std::filesystem::remove(folder / "checkpoints" / "checkpoint_0" / "optimizer.bin");
      std::filesystem::remove(folder / "checkpoints" / "checkpoint_2" / "optimizer.bin");
    }
    training.accelerator().wait_for_everyone();
    ResumeTraining resumed({}, 1000, project());
    EXPECT_EQ(resumed.accelerator().load_state(), folder / "checkpoints" / "checkpoint_1");
  });
  wait_all();
  EXPECT_THAT(output_of(0), testing::AllOf(HasSubstr("warning: passing over "),
                                           HasSubstr("checkpoint_2, which is newer but not "
                                                     "complete: "),
                                           HasSubstr("optimizer.bin")));
  EXPECT_THAT(output_of(0), testing::Not(HasSubstr("checkpoint_0")));
  EXPECT_THAT(output_of(1), testing::Not(HasSubstr("passing over")));
}

TEST_F(StateProject, ARunThatHasNoCheckpointYetMayAskForOne) {
  run(2, [&](const Rank&) {
    ResumeTraining training({}, 7, project());
    const std::vector<double> before = flat(training.net()->parameters());
    Accelerator& accelerator = training.accelerator();
    EXPECT_THAT(thrown_by<CheckpointError>([&] { accelerator.load_state(); }),
                HasSubstr("there is no checkpoint to load"));
    EXPECT_EQ(accelerator.load_state({}, {.if_any = true}), "");
    EXPECT_EQ(accelerator.load_state(folder / "best", {.if_any = true}), "");
    // What a first save that was cut short leaves behind.
    std::filesystem::create_directories(folder / "checkpoints");
    accelerator.wait_for_everyone();
    EXPECT_EQ(accelerator.load_state({}, {.if_any = true}), "");
    EXPECT_EQ(flat(training.net()->parameters()), before);
    EXPECT_EQ(accelerator.save_iteration(), 0);
    accelerator.save_state();
    EXPECT_EQ(accelerator.load_state({}, {.if_any = true}),
              folder / "checkpoints" / "checkpoint_0");
  });
}

TEST_F(StateProject, AJobThatIsStartedAgainGoesOnFromTheNewestUndamagedOne) {
  run(2, [&](const Rank& rank) {
    ResumeTraining training({}, 7, project());
    EXPECT_EQ(training.accelerator().resume(), std::nullopt);
    std::vector<std::vector<double>> weights;
    training.train(0, 3, [&](int) {
      training.accelerator().save_state({.async = true}).wait();
      weights.push_back(flat(training.net()->parameters()));
    });
    ResumeTraining again({}, 1000, project());
    EXPECT_EQ(again.accelerator().resume(), folder / "checkpoints" / "checkpoint_2");
    EXPECT_EQ(flat(again.net()->parameters()), weights[2]);
    if (rank.rank == 0) damage(folder / "checkpoints" / "checkpoint_2" / "model.safetensors");
    again.accelerator().wait_for_everyone();
    EXPECT_EQ(again.accelerator().resume(), folder / "checkpoints" / "checkpoint_1");
    EXPECT_EQ(flat(again.net()->parameters()), weights[1]);
    EXPECT_EQ(again.accelerator().resume(folder / "none_yet"), std::nullopt);
    EXPECT_EQ(again.accelerator().load_state({.fall_back = true}),
              folder / "checkpoints" / "checkpoint_1");
  });
}

TEST_F(StateProject, OneThatCannotBeLoadedIsAnErrorAlsoWhereNoneWouldDo) {
  run(2, [&](const Rank& rank) {
    ResumeTraining training({}, 7, project());
    Accelerator& accelerator = training.accelerator();
    accelerator.save_state();
    const auto directory = folder / "checkpoints" / "checkpoint_0";
    if (rank.rank == 0) std::filesystem::resize_file(directory / "model.safetensors", 5);
    accelerator.wait_for_everyone();
    EXPECT_THAT(thrown_by<CheckpointError>([&] { accelerator.load_state({}, {.if_any = true}); }),
                HasSubstr("there is no complete checkpoint"));
    EXPECT_THROW(accelerator.load_state(directory, {.if_any = true}), CheckpointError);
  });
}

TEST_F(StateProject, OldOnesGoWhenTheLimitIsReached) {
  run(2, [&](const Rank&) {
    Accelerator accelerator(with(project(2)));
    auto model = accelerator.prepare(std::make_shared<Mlp>());
    for (int i = 0; i < 5; ++i) accelerator.save_state();
    EXPECT_THAT(sorted_names(folder / "checkpoints"), ElementsAre("checkpoint_3", "checkpoint_4"));
    EXPECT_THAT(sorted_names(folder / "checkpoints" / "checkpoint_4"),
                ElementsAre("manifest.json", "model.safetensors", "random_states_0.pkl",
                            "random_states_1.pkl"));
  });
}

TEST_F(StateProject, ADamagedOneIsRefusedOrPassedOver) {
  run(2, [&](const Rank& rank) {
    ResumeTraining training({}, 7, project());
    std::vector<std::vector<double>> weights;
    training.train(0, 3, [&](int) {
      training.accelerator().save_state();
      weights.push_back(flat(training.net()->parameters()));
    });
    if (rank.rank == 0) damage(folder / "checkpoints" / "checkpoint_2" / "model.safetensors");
    training.accelerator().wait_for_everyone();
    ResumeTraining resumed({}, 1000, project());
    const auto before = flat(resumed.net()->parameters());
    EXPECT_THAT(thrown_by<CheckpointError>([&] { resumed.accelerator().load_state(); }),
                HasSubstr("model.safetensors, tensor"));
    EXPECT_EQ(flat(resumed.net()->parameters()), before);
    EXPECT_EQ(resumed.accelerator().load_state({}, {.fall_back = true}),
              folder / "checkpoints" / "checkpoint_1");
    EXPECT_EQ(flat(resumed.net()->parameters()), weights[1]);
    EXPECT_EQ(resumed.accelerator().save_iteration(), 3);
    const auto named = folder / "checkpoints" / "checkpoint_2";
    EXPECT_EQ(resumed.accelerator().load_state(named, {.fall_back = true}),
              folder / "checkpoints" / "checkpoint_1");
  });
}

TEST_F(StateProject, ATornOneIsNoCheckpoint) {
  run(1, [&](const Rank&) {
    Accelerator accelerator(with(project()));
    auto model = accelerator.prepare(std::make_shared<Mlp>());
    accelerator.save_state();
    accelerator.save_state();
    std::filesystem::remove(folder / "checkpoints" / "checkpoint_1" / "model.safetensors");
    EXPECT_EQ(accelerator.load_state(), folder / "checkpoints" / "checkpoint_0");
    std::filesystem::remove(folder / "checkpoints" / "checkpoint_0" / "model.safetensors");
    EXPECT_THAT(thrown_by<CheckpointError>([&] { accelerator.load_state(); }),
                HasSubstr("there is no complete checkpoint"));
  });
}

TEST_F(StateProject, EachNodeCanHaveItsOwn) {
  // Two nodes of one rank each, in folders of their own.
  const auto body = [&](const Rank& rank) {
    ProjectOptions own = project();
    own.project_dir = folder / ("node_" + std::to_string(rank.rank));
    own.save_on_each_node = true;
    setenv("LOCAL_RANK", "0", 1);
    setenv("LOCAL_WORLD_SIZE", "1", 1);
    setenv("GROUP_RANK", std::to_string(rank.rank).c_str(), 1);
    ResumeTraining training({}, 7, own);
    training.train(0, 2);
    training.accelerator().save_state();
    const auto directory = own.project_dir / "checkpoints" / "checkpoint_0";
    EXPECT_TRUE(std::filesystem::exists(directory / "model.safetensors"));
    EXPECT_EQ(std::filesystem::exists(directory / "random_states_0.pkl"), rank.rank == 0);
    EXPECT_EQ(std::filesystem::exists(directory / "random_states_1.pkl"), rank.rank == 1);
    const auto before = training.fingerprint();
    ResumeTraining resumed({}, 1000, own);
    EXPECT_EQ(resumed.accelerator().load_state(), directory);
    EXPECT_EQ(resumed.fingerprint(), before);
  };
  run(2, body);
}

TEST_F(StateProject, OptionsThatDoNotGoTogetherAreRefused) {
  run(1, [&](const Rank&) {
    EXPECT_THAT(usage_error([] { Accelerator(with({.automatic_checkpoint_naming = true})); }),
                HasSubstr("automatic_checkpoint_naming without a project_dir"));
    EXPECT_THAT(usage_error([] { Accelerator(with({.total_limit = 0})); }),
                HasSubstr("total_limit must be 1 or more"));
  });
}

}  // namespace
}  // namespace accelerate::test
