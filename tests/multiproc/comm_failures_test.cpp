// What the ranks that are left say when a peer is lost, late, or does something else.
#include <accelerate/process_control.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <thread>

#include "comm/groups/activity.h"
#include "comm/rendezvous/rendezvous.h"
#include "comm/watch/diagnosis.h"
#include "multiproc/group.h"

namespace accelerate::test {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;
using testing::AllOf;
using testing::AnyOf;
using testing::Eq;
using testing::HasSubstr;

// Far longer than a test may take: an error that comes in time did not come from the timeout.
constexpr minutes kTimeout{10};
// From the loss of a peer to the end of the last survivor. On an idle machine that takes half a
// second where the peer is gone and a library below notices, up to 4 s where none does (its return,
// the grace) or where the peer is only stopped (its answer is waited for). The rest is for a busy
// machine; what hangs, hangs for kTimeout.
constexpr seconds kSoon{10};
// Short, for the tests that wait for it.
constexpr seconds kShort{3};

TEST(Diagnosis, IsReadAsItWasWrittenAndAlsoWithoutItsLastPart) {
  const comm::Diagnosis whole{.what = "it broke", .hint = "mend it", .misused = "backward"};
  const auto read = comm::Diagnosis::decode(whole.encode());
  EXPECT_EQ(read.what, "it broke");
  EXPECT_EQ(read.hint, "mend it");
  EXPECT_EQ(read.misused, "backward");
  const auto cut = comm::Diagnosis::decode("it broke\nmend it");
  EXPECT_EQ(cut.what, "it broke");
  EXPECT_EQ(cut.hint, "mend it");
  EXPECT_EQ(cut.misused, "");
}

ProcessGroupOptions with_timeout(std::chrono::milliseconds timeout) {
  return {
      .timeout = timeout, .rendezvous_timeout = seconds(50), .cuda_backend = CudaBackend::kGloo};
}

struct CommFailures : Ranks {
  // Starts three ranks that reduce until an error comes, kills one in the middle.
  void lose(int lost) {
    spawn(3, [](const Rank& rank) {
      Group group(with_timeout(kTimeout));
      at::Tensor tensor = torch::ones({1 << 16}, test_device());
      group.comm.all_reduce(tensor);
      rank.reach(1);
      for (;;) group.comm.all_reduce(tensor, ReduceOp::kMax);
    });
    for (int rank = 0; rank < 3; ++rank) ASSERT_TRUE(wait_for_stage(rank, 1));
    kill_rank(lost, SIGKILL);
    for (int rank = 0; rank < 3; ++rank) {
      if (rank == lost) continue;
      EXPECT_EQ(exit_code_of(rank), kExitCommError);
      EXPECT_THAT(error_of(rank),
                  AllOf(HasSubstr("all_reduce"), HasSubstr("rank " + std::to_string(lost))));
    }
    EXPECT_LT(elapsed(), kSoon);
  }
};

TEST_F(CommFailures, SurvivorsNameAKilledPeerAndTheOperationLongBeforeTheTimeout) { lose(1); }

TEST_F(CommFailures, SurvivorsNameRankZeroWhenItIsKilled) { lose(0); }

// Rank 1 is stopped, so that rank 2, which is patient, cannot finish `wait_in_vain` and no library
// below it will ever say so. Rank 0, which is not patient, raises the alarm and leaves.
struct StuckRank : Ranks {
  using WaitInVain = std::function<void(Group&, const Rank&)>;

  void expect_rank_2_is_woken(const WaitInVain& wait_in_vain, const std::string& operation) {
    spawn(3, [wait_in_vain](const Rank& rank) {
      Group group(with_timeout(rank.rank == 0 ? kShort : kTimeout));
      group.comm.barrier();
      rank.reach(1);
      if (rank.rank == 1) pause();
      rank.wait_for(1, 1);
      rank.wait_for(0, 1);
      wait_in_vain(group, rank);
    });
    for (int rank = 0; rank < 3; ++rank) ASSERT_TRUE(wait_for_stage(rank, 1));
    stop_rank(1);
    for (int rank : {0, 2}) {
      EXPECT_EQ(exit_code_of(rank), kExitCommError);
      EXPECT_THAT(error_of(rank), AllOf(HasSubstr("rank 1 did not arrive"), HasSubstr(operation)));
    }
    EXPECT_GE(elapsed(), kShort);
    EXPECT_LT(elapsed(), kShort + kSoon);
    kill_rank(1, SIGKILL);
  }
};

TEST_F(StuckRank, IsWokenInABarrier) {
  expect_rank_2_is_woken([](Group& group, const Rank&) { group.comm.barrier(); }, "barrier");
}

// Rank 0 has got its part and waits in the barrier that follows.
TEST_F(StuckRank, IsWokenInASendThatNobodyTakes) {
  expect_rank_2_is_woken(
      [](Group& group, const Rank&) {
        at::Tensor tensor = torch::ones({1 << 20}, test_device());
        group.comm.broadcast(tensor, 2);
        group.comm.barrier();
      },
      "broadcast from 2");
}

TEST_F(StuckRank, IsWokenInAnAllReduce) {
  expect_rank_2_is_woken(
      [](Group& group, const Rank&) {
        at::Tensor tensor = torch::ones({1 << 20}, test_device());
        group.comm.all_reduce(tensor);
      },
      "all_reduce");
}

TEST_F(StuckRank, IsWokenInAnExchangeOfBytes) {
  expect_rank_2_is_woken(
      [](Group& group, const Rank& rank) {
        (void)group.comm.all_gather_bytes(std::string(1 << 20, rank.rank == 2 ? 'c' : 'a'));
      },
      "all_gather");
}

// The thread of the library below still hangs in its send when the process ends.
TEST_F(StuckRank, EndsItsProcessSoonAfterwards) {
  spawn(3, [](const Rank& rank) {
    static std::unique_ptr<Group> group;  // destroyed by exit()
    group = std::make_unique<Group>(with_timeout(rank.rank == 0 ? kShort : kTimeout));
    group->comm.barrier();
    rank.reach(1);
    if (rank.rank == 1) pause();
    rank.wait_for(1, 1);
    EXPECT_THROW(group->comm.barrier(), CommError);
    rank.reach(2);
    if (rank.rank == 2) std::exit(testing::Test::HasFailure() ? kExitFailed : kExitCommError);
  });
  for (int rank = 0; rank < 3; ++rank) ASSERT_TRUE(wait_for_stage(rank, 1));
  stop_rank(1);
  ASSERT_TRUE(wait_for_stage(2, 2));
  const auto thrown = std::chrono::steady_clock::now();
  EXPECT_EQ(exit_code_of(2), kExitCommError);
  EXPECT_LT(std::chrono::steady_clock::now() - thrown, kSoon);
  EXPECT_EQ(exit_code_of(0), kExitPassed);
  kill_rank(1, SIGKILL);
}

// Whether a connection of this machine has bytes that its other end does not take in.
bool is_any_socket_stuck() {
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream in(table);
    std::string line;
    std::getline(in, line);  // the heading
    while (std::getline(in, line)) {
      // number: local remote state unsent:unread ...
      std::istringstream words(line);
      std::string skipped, queues;
      words >> skipped >> skipped >> skipped >> skipped >> queues;
      constexpr unsigned long kManyBytes = 1 << 16;
      if (std::stoul(queues.substr(0, queues.find(':')), nullptr, 16) > kManyBytes) return true;
    }
  }
  return false;
}

// A send that is under way when its connection breaks: Gloo forgets to tell whoever waits for it,
// and no other rank is left to raise the alarm.
TEST_F(CommFailures, AHalfSentMessageToAKilledPeerEndsInAnError) {
  spawn(2, [](const Rank& rank) {
    Group group(with_timeout(kTimeout));
    at::Tensor tensor = torch::ones({1 << 25}, test_device());
    for (int round = 0;; ++round) {
      group.comm.broadcast(tensor, 0);  // far more than the buffers between them hold
      if (round == 1) rank.reach(1);
    }
  });
  for (int rank = 0; rank < 2; ++rank) ASSERT_TRUE(wait_for_stage(rank, 1));
  // Stopped between two messages rank 1 has asked for nothing, and rank 0 sends nothing.
  bool half_sent = false;
  for (int attempt = 0; attempt < 100 && !half_sent; ++attempt) {
    if (attempt > 0) continue_rank(1);
    std::this_thread::sleep_for(std::chrono::milliseconds(attempt % 10));
    stop_rank(1);
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    half_sent = is_any_socket_stuck();
  }
  ASSERT_TRUE(half_sent);
  kill_rank(1, SIGKILL);
  EXPECT_EQ(exit_code_of(0), kExitCommError);
  EXPECT_THAT(error_of(0),
              AllOf(HasSubstr("broadcast from 0"), HasSubstr("rank 1 did not arrive")));
  EXPECT_LT(elapsed(), kSoon);
}

TEST_F(CommFailures, AWriteToALostPeerDoesNotEndTheProcess) {
  run(2, [](const Rank&) {
    const Group group;
    EXPECT_EQ(raise(SIGPIPE), 0);  // by default the process would end here
  });
}

TEST_F(CommFailures, AHandlerOfTheProgramsOwnForBrokenPipesStays) {
  run(2, [](const Rank&) {
    static volatile std::sig_atomic_t seen = 0;
    std::signal(SIGPIPE, [](int) { seen = 1; });
    const Group group;
    raise(SIGPIPE);
    EXPECT_EQ(seen, 1);
  });
}

TEST_F(CommFailures, APeerThatEndsInPeaceIsNamedToo) {
  spawn(2, [](const Rank& rank) {
    Group group(with_timeout(kTimeout));
    group.comm.barrier();
    if (rank.rank == 1) return;
    group.comm.barrier();
  });
  EXPECT_EQ(exit_code_of(1), kExitPassed);
  const auto left = std::chrono::steady_clock::now();
  EXPECT_EQ(exit_code_of(0), kExitCommError);
  EXPECT_LT(std::chrono::steady_clock::now() - left, kSoon);
  EXPECT_THAT(error_of(0),
              AllOf(HasSubstr("barrier"),
                    HasSubstr("rank 1 did not arrive: it has left its loop and ended normally"),
                    HasSubstr("decide together when to stop"), HasSubstr("check_trigger()")));
}

TEST_F(CommFailures, ARankZeroThatEndsInPeaceIsNamedToo) {
  spawn(2, [](const Rank& rank) {
    Group group(with_timeout(kTimeout));
    group.comm.barrier();
    if (rank.rank == 0) return;
    group.comm.barrier();
  });
  EXPECT_EQ(exit_code_of(0), kExitPassed);
  EXPECT_EQ(exit_code_of(1), kExitCommError);
  EXPECT_THAT(error_of(1), AllOf(HasSubstr("rank 0 has left its loop"),
                                 HasSubstr("decide together when to stop")));
}

TEST_F(CommFailures, APeerThatEndsByAnErrorIsToldFromOneThatLeaves) {
  spawn(3, [](const Rank& rank) {
    Group group(with_timeout(kTimeout));
    group.comm.barrier();
    if (rank.rank == 2) throw UsageError({.what = "mine alone"});
    group.comm.barrier();
  });
  EXPECT_EQ(exit_code_of(2), kExitUsageError);
  for (const int rank : {0, 1}) {
    EXPECT_EQ(exit_code_of(rank), kExitCommError);
    EXPECT_THAT(error_of(rank),
                AllOf(HasSubstr("rank 2 did not arrive: it ended with an error"),
                      HasSubstr("said why"), testing::Not(HasSubstr("decide together"))));
  }
}

TEST_F(CommFailures, ARankThatWaitsLongSaysForWhat) {
  spawn(2, [](const Rank& rank) {
    Group group(with_timeout(kTimeout));
    group.comm.barrier();
    if (rank.rank == 1) std::this_thread::sleep_for(seconds(12));
    const comm::Activity activity(group.comm, "the end of the test");
    group.comm.barrier();
  });
  wait_all();
  EXPECT_THAT(output_of(0), testing::ContainsRegex("warning: waiting for other ranks for 1[0-9] "
                                                   "s: the end of the test \\(barrier\\)"));
  EXPECT_THAT(output_of(1), testing::Not(HasSubstr("waiting for other ranks")));
}

// The kind of error, for ranks that end with it.
void expect_unlike_operations(const std::string& error, const std::string& others) {
  EXPECT_THAT(error, AllOf(HasSubstr("the ranks wait for each other in different operations: "),
                           HasSubstr(others), HasSubstr("all ranks must make the same calls")));
}

TEST_F(CommFailures, RanksThatWaitForEachOtherInDifferentOperationsAreToldLongBeforeTheTimeout) {
  spawn(3, [](const Rank& rank) {
    Group group(with_timeout(kTimeout));
    group.comm.barrier();
    if (rank.rank == 1) {
      const comm::Activity activity(group.comm, "save_model");
      (void)group.comm.all_gather(torch::ones({3}, test_device()));
    } else {
      at::Tensor gradients = torch::ones({1 << 10}, test_device());
      group.comm.guard("backward", [&] { group.comm.all_reduce(gradients); });
    }
  });
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(exit_code_of(rank), kExitUsageError);
    expect_unlike_operations(error_of(rank), "rank 1 in save_model (all_gather");
    EXPECT_THAT(error_of(rank), HasSubstr("all_reduce sum Float[1024]"));
  }
  EXPECT_LT(elapsed(), minutes(1));
}

// The exchanges of a rank that waits in without_timeout() are short, unless another rank is not in
// it.
TEST_F(CommFailures, ARankThatIsDoneWithItsPartIsToldFromOneInAnotherOperation) {
  spawn(2, [](const Rank& rank) {
    Group group(with_timeout(kTimeout));
    if (rank.rank == 0) {
      const comm::Activity activity(group.comm, "save_state");
      without_timeout(group.comm, [] {});
    } else {
      (void)group.comm.all_gather(torch::ones({3}, test_device()));
    }
  });
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(exit_code_of(rank), kExitUsageError);
    expect_unlike_operations(error_of(rank), "rank 0 in save_state (all_reduce min Int[2])");
    EXPECT_THAT(error_of(rank), HasSubstr("rank 1 in all_gather Float[3]"));
  }
  EXPECT_LT(elapsed(), minutes(1));
}

// Two ranks call one operation by two names, and wait for the third one.
TEST_F(CommFailures, RanksInOneOperationUnderTwoNamesAreNotTakenForDifferent) {
  spawn(3, [](const Rank& rank) {
    Group group(with_timeout(kTimeout));
    group.comm.barrier();
    if (rank.rank == 2) std::this_thread::sleep_for(seconds(12));
    const comm::Activity activity(group.comm, "the part of rank " + std::to_string(rank.rank));
    at::Tensor sum = torch::ones({4}, test_device());
    group.comm.all_reduce(sum);
    EXPECT_EQ(sum[0].item<float>(), 3.0F);
  });
  wait_all();
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_THAT(output_of(rank),
                HasSubstr("s: the part of rank " + std::to_string(rank) + " (all_"));
  }
}

TEST_F(CommFailures, APeerThatNeverComesIsSaidToBeInAnotherGroup) {
  spawn(3, [](const Rank& rank) {
    Group group(with_timeout(rank.rank == 0 ? kShort : kTimeout));  // it is the first to give up
    const auto part = group.comm.split(rank.rank == 0 ? -1 : 0);
    if (rank.rank == 2) {
      rank.wait_for(0, 1);
      return;
    }
    try {
      if (rank.rank == 1) part->barrier();
      group.comm.barrier();
    } catch (const CommError&) {
      rank.reach(1);
      throw;
    }
  });
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(exit_code_of(rank), kExitCommError);
    EXPECT_THAT(error_of(rank),
                HasSubstr("rank 1 did not arrive, its last was #1 split Long[3] (finished), "
                          "and it is in #2 barrier among ranks 1 and 2"));
  }
  EXPECT_EQ(exit_code_of(2), kExitPassed);
}

TEST_F(CommFailures, APeerThatNeverComesIsNamedWithItsLastOperation) {
  spawn(3, [](const Rank& rank) {
    Group group(with_timeout(kShort));
    at::Tensor tensor = torch::ones({2, 5}, test_device());
    group.comm.broadcast(tensor);
    if (rank.rank == 1) {
      rank.wait_for(0, 1);
      rank.wait_for(2, 1);
      return;
    }
    try {
      group.comm.all_reduce(tensor);
    } catch (const CommError&) {
      rank.reach(1);
      throw;
    }
  });
  EXPECT_EQ(exit_code_of(1), kExitPassed);
  for (int rank : {0, 2}) {
    EXPECT_EQ(exit_code_of(rank), kExitCommError);
    EXPECT_THAT(error_of(rank),
                AllOf(HasSubstr("all_reduce"), HasSubstr("rank 1"), HasSubstr("broadcast")));
  }
  EXPECT_GE(elapsed(), kShort);
}

TEST_F(CommFailures, AStoppedPeerIsNamedAfterTheTimeout) {
  spawn(2, [](const Rank& rank) {
    Group group(with_timeout(kShort));
    group.comm.barrier();
    rank.reach(1);
    for (;;) group.comm.barrier();
  });
  ASSERT_TRUE(wait_for_stage(0, 1));
  ASSERT_TRUE(wait_for_stage(1, 1));
  stop_rank(1);
  EXPECT_EQ(exit_code_of(0), kExitCommError);
  EXPECT_THAT(error_of(0), AllOf(HasSubstr("barrier"), HasSubstr("rank 1")));
  kill_rank(1, SIGKILL);
}

TEST_F(CommFailures, AStoppedRankZeroIsNamedAfterTheTimeout) {
  spawn(2, [](const Rank& rank) {
    Group group(with_timeout(kShort));
    group.comm.barrier();
    rank.reach(1);
    for (;;) group.comm.barrier();
  });
  ASSERT_TRUE(wait_for_stage(0, 1));
  ASSERT_TRUE(wait_for_stage(1, 1));
  stop_rank(0);
  EXPECT_EQ(exit_code_of(1), kExitCommError);
  EXPECT_THAT(error_of(1), AllOf(HasSubstr("barrier"), HasSubstr("rank 0")));
  kill_rank(0, SIGKILL);
}

TEST_F(CommFailures, AMissingRankIsNamedWhenTheRanksMeet) {
  spawn(4,
        [](const Rank& rank) {
          try {
            Group group({.rendezvous_timeout = kShort});
          } catch (const CommError&) {
            rank.reach(1);
            rank.wait_for(2 - rank.rank, 1);  // both tell what they found before one ends
            throw;
          }
        },
        {.only = {0, 2}});
  for (int rank : {0, 2}) {
    EXPECT_EQ(exit_code_of(rank), kExitCommError);
    EXPECT_THAT(error_of(rank), HasSubstr("ranks 1 and 3 did not join"));
  }
}

TEST_F(CommFailures, AMissingRankZeroIsNamedWhenTheRanksMeet) {
  spawn(2, [](const Rank&) { Group group({.rendezvous_timeout = kShort}); }, {.only = {1}});
  EXPECT_EQ(exit_code_of(1), kExitCommError);
  EXPECT_THAT(error_of(1), HasSubstr("rank 0"));
}

TEST_F(CommFailures, AMachineOfRankZeroThatNobodyKnowsIsNamedByAllRanks) {
  spawn(2, [](const Rank&) {
    RankEnvironment ranks = ProcessState::from_environment({.cpu = true}).ranks();
    ranks.master_address = "no-such-machine.invalid";
    (void)comm::meet(ranks, kShort);
  });
  for (int rank : {0, 1}) {
    EXPECT_EQ(exit_code_of(rank), kExitCommError);
    EXPECT_THAT(error_of(rank), AllOf(HasSubstr("the machine of rank 0, no-such-machine.invalid, "
                                                "is not known here: "),
                                      HasSubstr("set MASTER_ADDR to an address of it")));
  }
}

// Rank 1 waits first for rank 0, which comes late, then for rank 2, which never comes. If it
// granted each of them the whole timeout, rank 0 would give up before it.
TEST_F(CommFailures, TheTimeoutOfTheMeetingCountsFromItsBeginning) {
  spawn(3,
        [](const Rank& rank) {
          if (rank.rank == 0) {
            rank.wait_for(1, 1);
            std::this_thread::sleep_for(seconds(4));
          }
          rank.reach(1);
          try {
            Group group({.rendezvous_timeout = seconds(rank.rank == 0 ? 4 : 5)});
          } catch (const CommError&) {
            if (rank.rank == 0) {
              EXPECT_EQ(rank.stage_of(1), 2) << "rank 1 still waits";
            }
            rank.reach(2);
            throw;
          }
        },
        {.only = {0, 1}});
  for (int rank : {0, 1}) {
    EXPECT_EQ(exit_code_of(rank), kExitCommError);
    EXPECT_THAT(error_of(rank), HasSubstr("rank 2 did not join"));
  }
}

TEST_F(CommFailures, ARankOfAnotherJobAtTheSameAddressIsNotTakenForAPeer) {
  spawn(2, [](const Rank& rank) {
    RankEnvironment ranks = ProcessState::from_environment({.cpu = true}).ranks();
    ranks.job = "job " + std::to_string(rank.rank);
    try {
      (void)comm::meet(ranks, kShort);
    } catch (const CommError&) {
      rank.reach(1);
      rank.wait_for(1 - rank.rank, 1);  // rank 0 keeps the store until rank 1 has looked
      throw;
    }
  });
  EXPECT_EQ(exit_code_of(0), kExitCommError);
  EXPECT_EQ(exit_code_of(1), kExitCommError);
  EXPECT_THAT(error_of(0), HasSubstr("rank 1 did not join"));
  EXPECT_THAT(error_of(1), HasSubstr("rank 0 did not join"));
}

TEST_F(CommFailures, ARankThatBelievesInAnotherNumberOfRanksIsNotTakenForAPeer) {
  spawn(2, [](const Rank& rank) {
    RankEnvironment ranks = ProcessState::from_environment({.cpu = true}).ranks();
    if (rank.rank == 1) ranks.world_size = 3;
    try {
      (void)comm::meet(ranks, kShort);
    } catch (const CommError&) {
      rank.reach(1);
      rank.wait_for(1 - rank.rank, 1);
      throw;
    }
  });
  EXPECT_EQ(exit_code_of(0), kExitCommError);
  EXPECT_EQ(exit_code_of(1), kExitCommError);
  EXPECT_THAT(error_of(0), HasSubstr("rank 1 did not join"));
  EXPECT_THAT(error_of(1), HasSubstr("rank 0 did not join"));
  EXPECT_THAT(error_of(1), testing::ContainsRegex("is for 2 ranks.*, this rank is one of 3 ranks"));
}

TEST_F(CommFailures, AfterAFailureTheGroupRefusesFurtherUse) {
  spawn(2, [](const Rank& rank) {
    Group group(with_timeout(kTimeout));
    group.comm.barrier();
    if (rank.rank == 1) return;
    EXPECT_THROW(group.comm.barrier(), CommError);
    EXPECT_THROW(group.comm.barrier(), CommError);
    at::Tensor tensor = torch::ones({2}, test_device());
    EXPECT_THROW(group.comm.all_reduce(tensor), CommError);
  });
  EXPECT_EQ(exit_code_of(1), kExitPassed);
  const auto left = std::chrono::steady_clock::now();
  EXPECT_EQ(exit_code_of(0), kExitPassed);
  EXPECT_LT(std::chrono::steady_clock::now() - left, kSoon);
}

TEST_F(CommFailures, ALostPeerInsideAGuardedOperationIsNamed) {
  spawn(2, [](const Rank& rank) {
    Group group(with_timeout(kTimeout));
    group.comm.barrier();
    if (rank.rank == 1) return;
    at::Tensor tensor = torch::ones({2}, test_device());
    group.comm.guard("gradient exchange", [&] { group.comm.all_reduce(tensor); });
  });
  EXPECT_EQ(exit_code_of(1), kExitPassed);
  EXPECT_EQ(exit_code_of(0), kExitCommError);
  EXPECT_THAT(error_of(0), HasSubstr("rank 1"));
}

TEST_F(CommFailures, RaggedGatherOfTensorsThatDoNotFitIsRefusedOnAllRanks) {
  run(3, [](const Rank& rank) {
    Group group;
    EXPECT_THAT(group_usage_error([&] {
                  (void)group.comm.all_gather_ragged(torch::ones({2, rank.rank == 2 ? 5 : 4}));
                }),
                HasSubstr(rank.rank == 2 ? "rank 0" : "rank 2"));
    EXPECT_THAT(group_usage_error([&] {
                  (void)group.comm.all_gather_ragged(
                      torch::ones({2}, rank.rank == 1 ? at::kDouble : at::kFloat));
                }),
                HasSubstr(rank.rank == 1 ? "rank 0" : "rank 1"));
    EXPECT_NE(group_usage_error([&] {
                (void)group.comm.all_gather_ragged(rank.rank == 1 ? torch::ones({2, 2})
                                                                  : torch::ones({2}));
              }),
              "");
    group.comm.barrier();
  });
}

// With check_collectives every difference is found before anything is sent.
TEST_F(CommFailures, CheckedCollectivesRefuseADifferenceOnAllRanksAndNameIt) {
  run(3, [](const Rank& rank) {
    ProcessGroupOptions options = patient();
    options.check_collectives = true;
    Group group(options);
    at::Tensor shape = torch::ones({2, rank.rank == 1 ? 3 : 2}, test_device());
    EXPECT_THAT(group_usage_error([&] { group.comm.all_reduce(shape); }), HasSubstr("rank 1"));
    at::Tensor dtype = torch::ones({2}, rank.rank == 2 ? at::kLong : at::kInt);
    EXPECT_THAT(group_usage_error([&] { group.comm.all_reduce(dtype); }), HasSubstr("rank 2"));
    at::Tensor fine = torch::ones({2}, test_device());
    EXPECT_NE(group_usage_error([&] {
                group.comm.all_reduce(fine, rank.rank == 0 ? ReduceOp::kSum : ReduceOp::kMax);
              }),
              "");
    EXPECT_NE(group_usage_error([&] {
                if (rank.rank == 0) {
                  group.comm.barrier();
                } else {
                  group.comm.all_reduce(fine);
                }
              }),
              "");
    EXPECT_NE(group_usage_error([&] { group.comm.broadcast(fine, rank.rank); }), "");
    group.comm.all_reduce(fine);
    EXPECT_TRUE(same(fine, torch::full({2}, 3.0)));
  });
}

// Unchecked, a difference may be found late, or by Gloo, which aborts the process; but it never
// hangs and never passes.
TEST_F(CommFailures, UncheckedCollectivesOfDifferentSizesEndInAnError) {
  spawn(2, [](const Rank& rank) {
    Group group(with_timeout(kShort));
    at::Tensor tensor = torch::ones({rank.rank == 1 ? 3 : 200'000}, test_device());
    group.comm.all_reduce(tensor);
    group.comm.barrier();
  });
  for (int rank : {0, 1}) {
    EXPECT_THAT(exit_code_of(rank),
                AnyOf(Eq(kExitCommError), Eq(kExitUsageError), Eq(128 + SIGABRT)));
  }
}

}  // namespace
}  // namespace accelerate::test
