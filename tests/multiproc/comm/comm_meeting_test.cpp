// Ranks that do not find each other when they meet.
#include <functional>
#include <string>
#include <thread>

#include "comm/rendezvous/rendezvous.h"
#include "multiproc/comm/comm_failures.h"

namespace accelerate::test {
namespace {

using std::chrono::seconds;
using testing::AllOf;
using testing::HasSubstr;

struct CommMeeting : Ranks {
  // Two ranks that differ in what `change` does to their environment do not meet.
  void expect_no_meeting(const std::function<void(RankEnvironment&)>& change) {
    spawn(2, [&](const Rank& rank) {
      RankEnvironment ranks = ProcessState::from_environment({.cpu = true}).ranks();
      change(ranks);
      try {
        (void)comm::meet(ranks, kShort);
      } catch (const CommError&) {
        rank.reach(1);
        rank.wait_for(1 - rank.rank, 1);  // rank 0 keeps the store until rank 1 has looked
        throw;
      }
    });
    for (const int rank : {0, 1}) {
      EXPECT_EQ(exit_code_of(rank), kExitCommError);
      EXPECT_THAT(error_of(rank), HasSubstr("rank " + std::to_string(1 - rank) + " did not join"));
    }
  }
};

TEST_F(CommMeeting, AMissingRankIsNamedWhenTheRanksMeet) {
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

TEST_F(CommMeeting, AMissingRankZeroIsNamedWhenTheRanksMeet) {
  spawn(2, [](const Rank&) { Group group({.rendezvous_timeout = kShort}); }, {.only = {1}});
  EXPECT_EQ(exit_code_of(1), kExitCommError);
  EXPECT_THAT(error_of(1), HasSubstr("rank 0"));
}

TEST_F(CommMeeting, AMachineOfRankZeroThatNobodyKnowsIsNamedByAllRanks) {
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
TEST_F(CommMeeting, TheTimeoutOfTheMeetingCountsFromItsBeginning) {
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

TEST_F(CommMeeting, ARankOfAnotherJobAtTheSameAddressIsNotTakenForAPeer) {
  expect_no_meeting(
      [](RankEnvironment& ranks) { ranks.job = "job " + std::to_string(ranks.rank); });
}

TEST_F(CommMeeting, ARankThatBelievesInAnotherNumberOfRanksIsNotTakenForAPeer) {
  expect_no_meeting([](RankEnvironment& ranks) {
    if (ranks.rank == 1) ranks.world_size = 3;
  });
  EXPECT_THAT(error_of(1), testing::ContainsRegex("is for 2 ranks.*, this rank is one of 3 ranks"));
}

}  // namespace
}  // namespace accelerate::test
