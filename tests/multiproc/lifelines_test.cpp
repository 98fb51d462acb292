// The connections that tell a rank that has gone from one that is stopped.
#include "comm/watch/lifelines.h"

#include <csignal>
#include <memory>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "comm/rendezvous/rendezvous.h"
#include "multiproc/group.h"

namespace accelerate::test {
namespace {

using std::chrono::seconds;

// From the loss of a peer, on a busy machine.
constexpr seconds kLongBeforeAnyTimeout{10};

struct LifelineTest : Ranks {};

TEST_F(LifelineTest, TellsAPeerThatHasGoneFromOneThatIsStopped) {
  spawn(3, [](const Rank& rank) {
    const RankEnvironment ranks = ProcessState::from_environment({.cpu = true}).ranks();
    const comm::Meeting meeting = comm::meet(ranks, seconds(50));
    comm::Lifelines lifelines(meeting.store, ranks);
    lifelines.open();
    rank.reach(1);
    if (rank.rank == 1) raise(SIGSTOP);
    rank.wait_for(1, 1);
    const auto look = [&] {
      lifelines.look();
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    };
    for (int i = 0; i < 50; ++i) look();
    for (int other = 0; other < 3; ++other) EXPECT_FALSE(lifelines.is_gone(other));
    rank.reach(2);
    while (!lifelines.is_gone(1)) look();
    EXPECT_FALSE(lifelines.is_gone(1, seconds(50)));
    EXPECT_FALSE(lifelines.is_gone(2 - rank.rank));
    rank.reach(3);
    rank.wait_for(2 - rank.rank, 3);
  });
  for (int rank : {0, 2}) ASSERT_TRUE(wait_for_stage(rank, 2));
  kill_rank(1, SIGKILL);
  for (int rank : {0, 2}) EXPECT_EQ(exit_code_of(rank), kExitPassed);
  EXPECT_LT(elapsed(), kLongBeforeAnyTimeout);
}

// As on a machine so busy that rank 0 comes after all patience is spent.
TEST_F(LifelineTest, ConnectsLaterWhereRankZeroIsLate) {
  run(1, [](const Rank&) {
    RankEnvironment ranks;
    ranks.world_size = 2;
    ranks.master_address = "127.0.0.1";
    ranks.rank = 1;
    const auto store = c10::make_intrusive<c10d::HashStore>();
    comm::Lifelines rank_1(store, ranks);
    EXPECT_ANY_THROW(rank_1.open());
    rank_1.look();
    ranks.rank = 0;
    auto rank_0 = std::make_unique<comm::Lifelines>(store, ranks);
    // The line is there when its end is noticed.
    const auto give_up = std::chrono::steady_clock::now() + seconds(60);
    while (!rank_1.is_gone(0) && std::chrono::steady_clock::now() < give_up) {
      rank_1.look();
      if (rank_0) rank_0->look();
      if (rank_0 && rank_1.is_connected()) rank_0.reset();
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    EXPECT_TRUE(rank_1.is_gone(0));
  });
}

// Three ends in one process: a line that breaks though both of its ends live looks like this.
TEST_F(LifelineTest, BringsItsPeerBackWhenItIsMadeAgain) {
  run(1, [](const Rank&) {
    RankEnvironment ranks;
    ranks.world_size = 3;
    ranks.master_address = "127.0.0.1";
    const auto store = c10::make_intrusive<c10d::HashStore>();
    const auto end_of = [&](int rank) {
      ranks.rank = rank;
      auto lifelines = std::make_unique<comm::Lifelines>(store, ranks);
      lifelines->open();
      return lifelines;
    };
    const auto rank_0 = end_of(0);
    auto rank_1 = end_of(1);
    const auto rank_2 = end_of(2);
    const auto see = [&](bool gone) {
      while (rank_0->is_gone(1) != gone || rank_2->is_gone(1) != gone) {
        rank_0->look();
        rank_2->look();
      }
    };
    see(false);
    rank_1.reset();
    see(true);
    EXPECT_FALSE(rank_0->is_gone(2));
    EXPECT_FALSE(rank_2->is_gone(0));
    rank_1 = end_of(1);
    see(false);
    const auto newcomer = end_of(2);  // takes the place of the one before, and is told the same
    rank_1.reset();
    while (!newcomer->is_gone(1)) {
      rank_0->look();
      newcomer->look();
    }
    EXPECT_FALSE(newcomer->is_gone(0));
  });
}

}  // namespace
}  // namespace accelerate::test
