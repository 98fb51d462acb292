#include <accelerate/accelerate.h>
#include <accelerate/communicator_pointer.h>
#include <accelerate/logger.h>
#include <accelerate/partial_state.h>
#include <accelerate/process_control.h>
#include <accelerate/split.h>

#include <csignal>
#include <cstdlib>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "multiproc/group.h"

namespace accelerate::test {
namespace {

using testing::ContainsRegex;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

constexpr std::chrono::milliseconds kMoment{300};  // in which a rank that is let in would come in

// Stages that the ranks of these tests reach.
enum Stage : int { kInside = 1, kMayLeave = 2, kPassed = 3 };

// The rank as if each machine ran two of them.
void live_on_machines_of_two(const Rank& rank) {
  setenv("LOCAL_RANK", std::to_string(rank.rank % 2).c_str(), 1);
  setenv("LOCAL_WORLD_SIZE", "2", 1);
  setenv("GROUP_RANK", std::to_string(rank.rank / 2).c_str(), 1);
}

TEST_F(Ranks, OthersWaitUntilTheMainProcessHasLeftItsBlock) {
  run(3, [](const Rank& rank) {
    Group group;
    const auto turn = main_process_first(group.state, group.comm);
    if (rank.rank == 0) {
      std::this_thread::sleep_for(kMoment);
      EXPECT_EQ(rank.stage_of(1), 0);
      EXPECT_EQ(rank.stage_of(2), 0);
    } else {
      EXPECT_EQ(rank.stage_of(0), kMayLeave);
    }
    rank.reach(rank.rank == 0 ? kMayLeave : kInside);
  });
}

TEST_F(Ranks, TheMainProcessDoesNotWaitBeforeItsBlock) {
  run(2, [](const Rank& rank) {
    Group group;
    if (rank.rank != 0) rank.wait_for(0, kInside);
    const auto turn = main_process_first(group.state, group.comm);
    rank.reach(kInside);
  });
}

TEST_F(Ranks, AnExceptionInTheMainProcessLetsTheOthersGoOn) {
  run(3, [](const Rank& rank) {
    Group group;
    const auto block = [&] {
      const auto turn = main_process_first(group.state, group.comm);
      if (rank.rank == 0) throw std::runtime_error("disk full");
      rank.reach(kInside);
    };
    if (rank.rank == 0) {
      EXPECT_THROW(block(), std::runtime_error);
    } else {
      block();
    }
    group.comm.barrier();  // the group is as good as before
    EXPECT_EQ(rank.stage_of(1), kInside);
    EXPECT_EQ(rank.stage_of(2), kInside);
  });
}

TEST_F(Ranks, AnExceptionInAnotherProcessConcernsItAlone) {
  run(3, [](const Rank& rank) {
    Group group;
    const auto block = [&] {
      const auto turn = main_process_first(group.state, group.comm);
      if (rank.rank == 1) throw std::runtime_error("disk full");
    };
    if (rank.rank == 1) {
      EXPECT_THROW(block(), std::runtime_error);
    } else {
      EXPECT_NO_THROW(block());
    }
    group.comm.barrier();
  });
}

TEST_F(Ranks, ATurnThatEndsEarlyEndsOnce) {
  run(2, [](const Rank& rank) {
    Group group;
    for (int pass = 0; pass < 3; ++pass) {
      auto turn = main_process_first(group.state, group.comm);
      turn.end();
      if (pass == 1) continue;
      turn.end();
      // Only if each turn was one barrier do these meet.
      at::Tensor sum = torch::tensor(rank.rank + 1);
      group.comm.all_reduce(sum);
      EXPECT_EQ(sum.item<int>(), 3);
    }
  });
}

TEST_F(Ranks, OneProcessTakesItsTurnAtOnce) {
  run(1, [](const Rank&) {
    Group group;
    int runs = 0;
    {
      const auto turn = main_process_first(group.state, group.comm);
      const auto inner = local_main_process_first(group.state, group.comm);
      ++runs;
    }
    EXPECT_EQ(runs, 1);
  });
}

TEST_F(Ranks, TheMainProcessOfEachMachineGoesBeforeTheOthersThere) {
  run(4, [](const Rank& rank) {
    live_on_machines_of_two(rank);
    Group group;
    const bool goes_first = rank.rank % 2 == 0;
    const auto turn = local_main_process_first(group.state, group.comm);
    rank.reach(kInside);
    if (goes_first) {
      rank.wait_for(2 - rank.rank, kInside);  // those that go first are in it together
      std::this_thread::sleep_for(kMoment);
      EXPECT_EQ(rank.stage_of(rank.rank + 1), 0);
      rank.reach(kMayLeave);
    } else {
      EXPECT_GE(rank.stage_of(rank.rank - 1), kMayLeave);
    }
  });
}

TEST_F(Ranks, AMainProcessThatDiesInItsBlockEndsTheWaitOfTheOthers) {
  spawn(3, [](const Rank& rank) {
    Group group;
    group.comm.barrier();  // until then a rank may still be connecting to the one that dies
    const auto turn = main_process_first(group.state, group.comm);
    rank.reach(kInside);
    if (rank.rank == 0) rank.wait_for(1, kPassed);  // which never happens: it is killed
  });
  ASSERT_TRUE(wait_for_stage(0, kInside));
  kill_rank(0, SIGKILL);
  EXPECT_EQ(exit_code_of(1), kExitCommError);
  EXPECT_EQ(exit_code_of(2), kExitCommError);
  EXPECT_THAT(error_of(1), HasSubstr("barrier"));
}

TEST_F(Ranks, APeerThatDiesWhileItWaitsIsReportedAfterTheBlockOfTheMainProcess) {
  spawn(2, [](const Rank& rank) {
    Group group;
    if (rank.rank == 1) {
      rank.wait_for(0, kInside);
      raise(SIGKILL);
    }
    {
      const auto turn = main_process_first(group.state, group.comm);
      rank.reach(kInside);
    }
    EXPECT_THROW(group.comm.barrier(), CommError);
  });
  EXPECT_EQ(exit_code_of(1), 128 + SIGKILL);
  EXPECT_EQ(exit_code_of(0), kExitPassed);
  EXPECT_THAT(output_of(0), HasSubstr("[rank 0] error: the other ranks were not let in: "));
}

TEST_F(Ranks, AFlagOfAnyRankIsSeenByAllOnce) {
  for (int world_size : {1, 2, 4}) {
    run(world_size, [](const Rank& rank) {
      Group group;
      Trigger trigger;
      EXPECT_FALSE(trigger.check(group.comm));
      if (rank.rank == rank.world_size - 1) trigger.set();
      EXPECT_TRUE(trigger.check(group.comm));
      EXPECT_FALSE(trigger.check(group.comm));
      trigger.set();  // by all of them, and twice
      trigger.set();
      EXPECT_TRUE(trigger.check(group.comm));
      EXPECT_FALSE(trigger.check(group.comm));
    });
  }
}

TEST_F(Ranks, SharesOfTheInputsComeTogetherToAllOfThem) {
  const auto shares = run_collect(3, [](const Rank&) {
    Group group;
    const std::vector<int> inputs{10, 11, 12, 13, 14};
    return split_between_processes(group.state, inputs);
  });
  EXPECT_THAT(shares, testing::ElementsAre(std::vector<int>{10, 11}, std::vector<int>{12, 13},
                                           std::vector<int>{14}));
}

// What `say` writes on each rank, by rank.
template <class Say>
auto lines_of(Say say) {
  return [say](const Rank&) {
    Group group;
    std::ostringstream out;
    Logger logger("train", group.state, group.comm, {.level = "info", .stream = &out});
    say(logger);
    return out.str();
  };
}

TEST_F(Ranks, AMessageIsWrittenByTheMainProcessAlone) {
  EXPECT_THAT(run_collect(3, lines_of([](Logger& logger) { logger.info("hello"); })),
              testing::ElementsAre("[rank 0] info: train: hello\n", "", ""));
}

TEST_F(Ranks, AMessageOfAllIsWrittenByEveryRank) {
  EXPECT_THAT(run_collect(3, lines_of([](Logger& logger) {
                            logger.info("hello", {.main_process_only = false});
                          })),
              testing::ElementsAre("[rank 0] info: train: hello\n", "[rank 1] info: train: hello\n",
                                   "[rank 2] info: train: hello\n"));
}

TEST_F(Ranks, AWarningOfAllIsWrittenOnceByEveryRank) {
  EXPECT_THAT(
      run_collect(2, lines_of([](Logger& logger) {
                    for (int i = 0; i < 3; ++i) {
                      logger.warning_once("hot", {.main_process_only = false});
                    }
                  })),
      testing::ElementsAre("[rank 0] warning: train: hot\n", "[rank 1] warning: train: hot\n"));
}

TEST_F(Ranks, AWarningInOrderWaitsForTheRanksThatSaidItAlready) {
  EXPECT_THAT(
      run_collect(2,
                  [](const Rank& rank) {
                    Group group;
                    std::ostringstream out;
                    Logger logger("train", group.state, group.comm, {.stream = &out});
                    if (rank.rank == 1) {
                      logger.warning_once("hot", {.main_process_only = false});
                    }
                    for (int i = 0; i < 2; ++i) {
                      logger.warning_once("hot", {.in_order = true});
                    }
                    at::Tensor met = torch::ones({1});
                    group.comm.all_reduce(met);  // the ranks are still in step
                    EXPECT_EQ(met.item<float>(), 2);
                    return out.str();
                  }),
      testing::ElementsAre("[rank 0] warning: train: hot\n", "[rank 1] warning: train: hot\n"));
}

// A stream that tells the other ranks when a line is written, and how many were before.
class TurnRecorder : public std::stringbuf {
 public:
  explicit TurnRecorder(const Rank& rank) : rank_(rank) {}

  int sync() override {
    for (int other = 0; other < rank_.world_size; ++other) {
      if (other == rank_.rank) continue;
      // The ranks before this one have written this line, those after it have not.
      EXPECT_EQ(rank_.stage_of(other), lines_ + (other < rank_.rank ? 1 : 0)) << "rank " << other;
    }
    rank_.reach(++lines_);
    return 0;
  }
  int lines() const { return lines_; }

 private:
  const Rank& rank_;
  int lines_ = 0;
};

TEST_F(Ranks, MessagesInOrderAreWrittenByOneRankAfterTheOther) {
  for (int world_size : {2, 4}) {
    run(world_size, [](const Rank& rank) {
      Group group;
      TurnRecorder recorder(rank);
      std::ostream out(&recorder);
      Logger logger("", group.state, group.comm, {.level = "info", .stream = &out});
      for (int line = 0; line < 5; ++line) logger.info("mine", {.in_order = true});
      EXPECT_EQ(recorder.lines(), 5);
    });
  }
}

TEST_F(Ranks, ARankWhoseLevelHidesAMessageTakesItsTurnAllTheSame) {
  const auto lines = run_collect(2, [](const Rank& rank) {
    Group group;
    std::ostringstream out;
    Logger logger("", group.state, group.comm,
                  {.level = rank.rank == 0 ? LogLevel::kError : LogLevel::kInfo, .stream = &out});
    logger.info("mine", {.in_order = true});
    group.comm.barrier();
    return out.str();
  });
  EXPECT_THAT(lines, testing::ElementsAre("", "[rank 1] info: mine\n"));
}

TEST_F(Ranks, TheEnvironmentSetsTheLevelAndStandardErrorIsTheDefault) {
  spawn(2,
        [](const Rank&) {
          Group group;
          Logger logger("train", group.state, group.comm);
          logger.debug("a", {.main_process_only = false});
          logger.info("b", {.main_process_only = false});
          log(LogLevel::kInfo, "of the library");
        },
        {.environment = {{"ACCELERATE_LOG_LEVEL", "INFO"}}});
  wait_all();
  for (const std::string rank : {"0", "1"}) {
    const std::string output = output_of(std::stoi(rank));  // libtorch may have said something too
    EXPECT_THAT(output, EndsWith("[rank " + rank + "] info: train: b\n[rank " + rank +
                                 "] info: of the library\n"));
    EXPECT_THAT(output, Not(HasSubstr("debug")));
  }
}

TEST_F(Ranks, AWordInTheEnvironmentThatIsNoLevelIsAConfigError) {
  spawn(1,
        [](const Rank&) {
          Group group;
          Logger logger("train", group.state, group.comm);
        },
        {.environment = {{"ACCELERATE_LOG_LEVEL", "loud"}}});
  EXPECT_EQ(exit_code_of(0), kExitConfigError);
  EXPECT_THAT(error_of(0), HasSubstr("'loud' is not a log level"));
}

TEST_F(Ranks, WorkWithoutATimeoutMayTakeLongerThanThatOfTheGroup) {
  spawn(3, [](const Rank& rank) {
    ProcessGroupOptions impatient = patient();
    impatient.timeout = std::chrono::seconds(4);
    Group group(impatient);
    int done = 0;
    without_timeout(group.comm, [&] {
      if (rank.rank == 1) std::this_thread::sleep_for(std::chrono::seconds(12));
      done = rank.rank + 1;
    });
    EXPECT_EQ(done, rank.rank + 1);
    // An error keeps its type on its rank; the others throw its message when all have ended.
    try {
      without_timeout(group.comm, [&] {
        if (rank.rank == 2) throw std::runtime_error("disk full");
      });
      ADD_FAILURE() << "expected an error";
    } catch (const CommError& error) {
      EXPECT_NE(rank.rank, 2);
      EXPECT_THAT(error.what(), AllOf(HasSubstr("[rank " + std::to_string(rank.rank) + " of 3]"),
                                      HasSubstr("the work of rank 2 failed: disk full"),
                                      HasSubstr("at   without_timeout")));
    } catch (const std::runtime_error& error) {
      EXPECT_EQ(rank.rank, 2);
      EXPECT_STREQ(error.what(), "disk full");
    }
    group.comm.barrier();
  });
  wait_all();
  EXPECT_THAT(output_of(0),
              ContainsRegex("warning: waiting for other ranks for 1[0-9] s: without_timeout"));
  EXPECT_THAT(output_of(1), Not(HasSubstr("waiting for other ranks")));
}

TEST_F(Ranks, APartialStateIsAllThatAProgramWithoutTrainingNeeds) {
  spawn(3, [](const Rank& rank) {
    PartialState state({.cpu = true, .process_group = patient()});
    EXPECT_EQ(state.process_index(), rank.rank);
    EXPECT_EQ(state.num_processes(), 3);
    EXPECT_EQ(state.is_last_process(), rank.rank == 2);
    const std::vector<int> own = state.split_between_processes(std::vector<int>{1, 2, 3, 4});
    EXPECT_EQ(own.size(), rank.rank == 0 ? 2U : 1U);
    // Where a Communicator or a ProcessState is wanted.
    EXPECT_EQ(gather_object(state, own), (std::vector<int>{1, 2, 3, 4}));
    EXPECT_EQ(reduce(state, 1), 3);
    EXPECT_EQ(on_main_process(state, [] { return 7; })().has_value(), rank.rank == 0);
    {
      const auto turn = state.main_process_first();
      if (rank.rank == 0) rank.reach(kInside);
    }
    EXPECT_EQ(rank.stage_of(0), kInside);
    const PartialState copy = state;
    copy.wait_for_everyone();
    state.print("all ", state.num_processes(), " done");
  });
  wait_all();
  EXPECT_THAT(output_of(0), HasSubstr("all 3 done\n"));
  EXPECT_THAT(output_of(1), Not(HasSubstr("done")));
}

TEST_F(Ranks, APartialStateOfOneProcessNeedsNoLauncher) {
  run(1,
      [](const Rank&) {
        const PartialState state({.cpu = true});
        EXPECT_EQ(state.num_processes(), 1);
        EXPECT_EQ(state.split_between_processes(std::vector<int>{1, 2}), (std::vector<int>{1, 2}));
        state.wait_for_everyone();
        EXPECT_EQ(gather_object(state, 5), std::vector<int>{5});
      },
      {.launched = false});
}

TEST_F(Ranks, AnAcceleratorStandsForItsCommunicator) {
  run(2, [](const Rank& rank) {
    Accelerator accelerator({.cpu = true, .process_group = patient()});
    EXPECT_EQ(reduce(accelerator, rank.rank + 1), 3);
    Trigger trigger;
    if (rank.rank == 1) trigger.set();
    EXPECT_TRUE(trigger.check(accelerator));
    int64_t tried = 0;
    find_executable_batch_size([&](int64_t size) { tried = size; },
                               {.starting_batch_size = 6, .communicator = &accelerator});
    EXPECT_EQ(tried, 6);
    const CommunicatorPointer none;
    EXPECT_TRUE(none == nullptr);
    EXPECT_EQ(CommunicatorPointer(&accelerator).get(), &accelerator.communicator());
  });
}

}  // namespace
}  // namespace accelerate::test
