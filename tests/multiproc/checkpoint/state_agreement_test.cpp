// Ranks wait for each other's disks, and end a save or a load with one outcome.
#include "checkpoint/state/state_agreement.h"

#include <chrono>
#include <new>
#include <thread>

#include "checkpoint/state/state_loading.h"
#include "checkpoint/state/state_saving.h"
#include "core/iteration_part.h"
#include "multiproc/loading.h"
#include "multiproc/resume_training.h"

namespace accelerate::test {
namespace {

using checkpoint::agree;
using checkpoint::SaveGroup;
using checkpoint::SaveJob;
using testing::AllOf;
using testing::HasSubstr;

constexpr std::chrono::seconds kTimeout{4};  // ranks that do nothing else meet sooner
constexpr std::chrono::seconds kLongerThanThat{6};

struct StateAgreement : Ranks {
  StateFolder folder;
};

AcceleratorOptions impatient() {
  AcceleratorOptions options = on_cpu();
  options.process_group.timeout = kTimeout;
  return options;
}

SaveGroup group_of(const Rank& rank) { return {.id = 0, .is_leader = rank.rank == 0}; }

TEST_F(StateAgreement, AWriterMayTakeLongerThanTheTimeout) {
  run(3, [&](const Rank& rank) {
    Accelerator accelerator(impatient());
    Communicator& ranks = accelerator.communicator();
    SaveJob job = SaveJob::begin(ranks, group_of(rank), [&] {
      std::this_thread::sleep_for(kLongerThanThat);
      return checkpoint::SaveTarget{.directory = folder / "state"};
    });
    job.snapshot().add("file_" + std::to_string(rank.rank) + ".bin", TorchValue(rank.rank));
    job.write(ranks);
    EXPECT_TRUE(std::filesystem::exists(folder / "state" / "file_2.bin"));
  });
}

TEST_F(StateAgreement, AReaderMayTakeLongerThanTheTimeout) {
  run(2, [&](const Rank& rank) {
    Accelerator accelerator(impatient());
    accelerator.save_state(folder / "state");
    const auto loaded = checkpoint::load_checkpoint(
        accelerator.communicator(), group_of(rank),
        {.candidates =
             [&] {
               std::this_thread::sleep_for(kLongerThanThat);
               return checkpoint::load_candidates(folder / "state", {}, {});
             },
         .parts = [](const auto&) { return checkpoint::StateParts{}; }},
        {});
    ASSERT_TRUE(loaded);
    EXPECT_EQ(loaded->directory(), folder / "state");
  });
}

// What apply() does is up to the test.
class ActingPart final : public checkpoint::StatePart {
 public:
  explicit ActingPart(std::function<void()> action) : action_(std::move(action)) {}
  void save(checkpoint::Snapshot& /*snapshot*/) const override {}
  void check(checkpoint::StateReader& /*reader*/) override {}
  void apply() override { action_(); }

 private:
  std::function<void()> action_;
};

// Loads `directory` through a part that acts, then one that tells the other ranks something.
void load_with(Accelerator& accelerator, const Rank& rank, const std::filesystem::path& directory,
               ProjectOptions& project, const std::function<void()>& action) {
  checkpoint::load_checkpoint(
      accelerator.communicator(), group_of(rank),
      {.candidates = [&] { return checkpoint::load_candidates(directory, {}, {}); },
       .parts =
           [&](const auto&) {
             checkpoint::StateParts parts;
             parts.push_back(std::make_unique<ActingPart>(action));
             parts.push_back(iteration_part(project, {}, accelerator.communicator(), true));
             return parts;
           }},
      {});
}

TEST_F(StateAgreement, ARankThatCannotTakeTheStateOverTellsTheOthersWhy) {
  run(3, [&](const Rank& rank) {
    AcceleratorOptions options = on_cpu();
    options.process_group.timeout = kUnreachedTimeout;
    Accelerator accelerator(options);
    accelerator.save_state(folder / "checkpoint_4");
    ProjectOptions project;
    const auto error_of = [&](auto fail) {
      return thrown_by<CheckpointError>([&] {
        load_with(accelerator, rank, folder / "checkpoint_4", project, [&] {
          if (rank.rank == 1) fail();
        });
      });
    };
    EXPECT_THAT(
        error_of([] { throw std::bad_alloc(); }),
        AllOf(HasSubstr("[rank 1 of 3]"), HasSubstr("could not be applied"),
              HasSubstr("out of memory"), HasSubstr("checkpoint_4"), HasSubstr("load again")));
    EXPECT_THAT(error_of([] {
                  throw CheckpointError({.what = "cannot be read", .where = "model.safetensors"});
                }),
                HasSubstr("cannot be read (model.safetensors)"));
    EXPECT_THAT(error_of([] { TORCH_CHECK(false, "no such device"); }),
                AllOf(HasSubstr("no such device"), testing::Not(HasSubstr("frame #"))));
    load_with(accelerator, rank, folder / "checkpoint_4", project, [] {});
    EXPECT_EQ(project.iteration, 5);
    accelerator.wait_for_everyone();
  });
}

TEST_F(StateAgreement, ARankMayTakeLongerThanTheTimeoutToTakeTheStateOver) {
  run(2, [&](const Rank& rank) {
    Accelerator accelerator(impatient());
    accelerator.save_state(folder / "state");
    ProjectOptions project;
    load_with(accelerator, rank, folder / "state", project, [&] {
      if (rank.rank == 1) std::this_thread::sleep_for(kLongerThanThat);
    });
    accelerator.wait_for_everyone();
  });
}

TEST_F(StateAgreement, AnyErrorOfOneRankIsTheSameErrorOnAll) {
  run(2, [&](const Rank& rank) {
    Accelerator accelerator(on_cpu());
    Communicator& ranks = accelerator.communicator();
    const auto error_of = [&](auto fail) {
      return thrown_by<CheckpointError>([&] {
        agree(ranks, [&] {
          if (rank.rank == 1) fail();
        });
      });
    };
    EXPECT_THAT(error_of([] { throw std::bad_alloc(); }), HasSubstr("[rank 1 of 2]"));
    EXPECT_THAT(error_of([] { throw CommError({.what = "another group is lost"}); }),
                AllOf(HasSubstr("[rank 1 of 2]"), HasSubstr("another group is lost")));
    EXPECT_THAT(error_of([] { throw 7; }), HasSubstr("not a std::exception"));
    EXPECT_THAT(thrown_by<UsageError>([&] {
                  agree(ranks, [&] {
                    if (rank.rank == 0) throw UsageError({.what = "wrong order"});
                  });
                }),
                AllOf(HasSubstr("[rank 0 of 2]"), HasSubstr("wrong order")));
    ranks.barrier();
  });
}

TEST_F(StateAgreement, WhatFailedIsTakenBackBeforeTheErrorIsSeen) {
  run(3, [&](const Rank& rank) {
    Accelerator accelerator(on_cpu());
    Communicator& ranks = accelerator.communicator();
    const auto own = folder / std::to_string(rank.rank);
    std::filesystem::create_directory(own);
    ranks.barrier();
    thrown_by<CheckpointError>([&] {
      const auto fail = [&] {
        if (rank.rank == 2) throw std::runtime_error("no");
      };
      agree(ranks, fail, {.take_back = [&] { std::filesystem::remove(own); }});
    });
    EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  });
}

}  // namespace
}  // namespace accelerate::test
