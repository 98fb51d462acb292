// What the ranks that are left say when a peer is lost or does something else.
#include "multiproc/comm/comm_failures.h"

#include <csignal>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

#include "comm/groups/activity.h"
#include "comm/watch/diagnosis.h"

namespace accelerate::test {
namespace {

using std::chrono::seconds;
using testing::AllOf;
using testing::HasSubstr;

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

TEST_F(CommFailures, SurvivorsNameAKilledPeerAndTheOperationLongBeforeTheTimeout) { lose(1); }

TEST_F(CommFailures, SurvivorsNameRankZeroWhenItIsKilled) { lose(0); }

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

}  // namespace
}  // namespace accelerate::test
