// Ranks that wait for one that is stopped.
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>

#include "multiproc/comm/comm_failures.h"

namespace accelerate::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

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

  // Of two ranks, of which `stopped` is.
  void expect_it_is_named(int stopped) {
    spawn(2, [](const Rank& rank) {
      Group group(with_timeout(kShort));
      group.comm.barrier();
      rank.reach(1);
      for (;;) group.comm.barrier();
    });
    ASSERT_TRUE(wait_for_stage(0, 1));
    ASSERT_TRUE(wait_for_stage(1, 1));
    stop_rank(stopped);
    EXPECT_EQ(exit_code_of(1 - stopped), kExitCommError);
    EXPECT_THAT(error_of(1 - stopped),
                AllOf(HasSubstr("barrier"), HasSubstr("rank " + std::to_string(stopped))));
    kill_rank(stopped, SIGKILL);
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

TEST_F(StuckRank, IsNamedAfterTheTimeout) { expect_it_is_named(1); }

TEST_F(StuckRank, IsNamedAfterTheTimeoutThoughItIsRankZero) { expect_it_is_named(0); }

}  // namespace
}  // namespace accelerate::test
