// Ranks wait for each other's disks, and end a save or a load with one outcome.
#include "checkpoint/state_agreement.h"

#include <chrono>
#include <new>
#include <thread>

#include "checkpoint/state_loading.h"
#include "checkpoint/state_saving.h"
#include "multiproc/loading.h"
#include "multiproc/resume_training.h"

namespace accelerate::test {
namespace {

using checkpoint::agree;
using checkpoint::caught;
using checkpoint::caught_on_all;
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

TEST_F(StateAgreement, WorkEndsTogetherAndKeepsItsErrors) {
  run(2, [&](const Rank& rank) {
    Accelerator accelerator(on_cpu());
    Communicator& ranks = accelerator.communicator();
    EXPECT_EQ(caught_on_all(ranks, [] {}), nullptr);
    const auto error = caught_on_all(ranks, [&] {
      if (rank.rank == 1) throw std::runtime_error("only here");
    });
    EXPECT_EQ(error != nullptr, rank.rank == 1);
    ranks.barrier();
  });
}

TEST_F(StateAgreement, AnyErrorOfOneRankIsTheSameErrorOnAll) {
  run(2, [&](const Rank& rank) {
    Accelerator accelerator(on_cpu());
    Communicator& ranks = accelerator.communicator();
    const auto error_of = [&](auto fail) {
      return thrown_by<CheckpointError>([&] {
        agree(ranks, caught([&] {
                if (rank.rank == 1) fail();
              }));
      });
    };
    EXPECT_THAT(error_of([] { throw std::bad_alloc(); }), HasSubstr("[rank 1 of 2]"));
    EXPECT_THAT(error_of([] { throw CommError({.what = "another group is lost"}); }),
                AllOf(HasSubstr("[rank 1 of 2]"), HasSubstr("another group is lost")));
    EXPECT_THAT(error_of([] { throw 7; }), HasSubstr("no std::exception"));
    EXPECT_THAT(thrown_by<UsageError>([&] {
                  agree(ranks, caught([&] {
                          if (rank.rank == 0) throw UsageError({.what = "wrong order"});
                        }));
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
      agree(ranks, caught([&] {
              if (rank.rank == 2) throw std::runtime_error("no");
            }),
            [&] { std::filesystem::remove(own); });
    });
    EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  });
}

}  // namespace
}  // namespace accelerate::test
