// The fixture itself: what a test of ranks relies on. No libtorch here.
#include <accelerate/errors.h>
#include <gmock/gmock.h>
#include <gtest/gtest-spi.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <iostream>
#include <set>
#include <stdexcept>
#include <thread>

#include "support/ranks.h"

// Waits for ever, in a function that a stack can name.
extern "C" __attribute__((noinline, visibility("default"))) void stuck_in_this_function() {
  for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
}

namespace accelerate::test {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;

// In which a rank that does not hang has begun, printed and left, also on a busy machine.
constexpr seconds kShort{3};

struct SelfTest : Ranks {
  // What `action` reports, instead of failing this test.
  std::string reported_by(const std::function<void()>& action) {
    testing::TestPartResultArray results;
    {
      testing::ScopedFakeTestPartResultReporter reporter(
          testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &results);
      action();
    }
    std::string text;
    for (int i = 0; i < results.size(); ++i) {
      const testing::TestPartResult& result = results.GetTestPartResult(i);
      text += std::string(result.skipped() ? "skip " : "failure ") +
              (result.file_name() == nullptr ? "" : result.file_name()) + ":" +
              std::to_string(result.line_number()) + " " + result.message() + "\n";
    }
    return text;
  }
};

TEST_F(SelfTest, EachRankIsAProcessOfItsOwnWithItsPlaceInTheEnvironment) {
  const auto seen = run_collect(3, [](const Rank& rank) {
    std::string text = std::to_string(rank.rank) + "/" + std::to_string(rank.world_size);
    for (const char* name : {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR",
                             "OMP_NUM_THREADS"}) {
      text += std::string(" ") + std::getenv(name);
    }
    return text;
  });
  EXPECT_THAT(seen, ElementsAre("0/3 0 0 3 3 127.0.0.1 1", "1/3 1 1 3 3 127.0.0.1 1",
                                "2/3 2 2 3 3 127.0.0.1 1"));
  const auto pids = run_collect(3, [](const Rank&) {
    return std::vector<int>{getpid(), getpgrp()};
  });
  std::set<int> different{getpid()};
  for (const std::vector<int>& ids : pids) {
    EXPECT_EQ(ids.at(0), ids.at(1));
    different.insert(ids.at(0));
  }
  EXPECT_EQ(different.size(), 4U);
}

TEST_F(SelfTest, AnUnlaunchedRankSeesNoneOfTheVariables) {
  setenv("WORLD_SIZE", "7", 1);
  setenv("ACCELERATE_MIXED_PRECISION", "bf16", 1);
  run(1,
      [](const Rank&) {
        EXPECT_EQ(std::getenv("WORLD_SIZE"), nullptr);
        EXPECT_EQ(std::getenv("RANK"), nullptr);
        EXPECT_EQ(std::getenv("MASTER_PORT"), nullptr);
        EXPECT_EQ(std::getenv("ACCELERATE_MIXED_PRECISION"), nullptr);
        EXPECT_STREQ(std::getenv("EXTRA"), "yes");
      },
      {.environment = {{"EXTRA", "yes"}}, .launched = false});
  unsetenv("WORLD_SIZE");
  unsetenv("ACCELERATE_MIXED_PRECISION");
}

TEST_F(SelfTest, TheMasterPortCanBeBoundByARankAndByNobodyWhoAsksForAnyPort) {
  run(2, [](const Rank& rank) {
    const int port = std::atoi(std::getenv("MASTER_PORT"));
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    const int yes = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(rank.rank == 0 ? port : 0));
    ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    ASSERT_EQ(listen(fd, 8), 0);
    socklen_t length = sizeof(address);
    getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length);
    EXPECT_EQ(ntohs(address.sin_port) == port, rank.rank == 0);
  });
}

TEST_F(SelfTest, AFailedExpectationIsReportedWithItsRankFileAndLine) {
  const int line = __LINE__ + 2;
  spawn(3, [](const Rank& rank) {
    EXPECT_NE(rank.rank, 1) << "one is not wanted";
    if (rank.rank == 2) FAIL() << "two fails for good";
  });
  const std::string text = reported_by([&] { TearDown(); });
  EXPECT_THAT(text,
              HasSubstr("ranks_fixture_test.cpp:" + std::to_string(line) + " Failed\n[rank 1] "));
  EXPECT_THAT(text, HasSubstr("one is not wanted"));
  EXPECT_THAT(
      text, HasSubstr("ranks_fixture_test.cpp:" + std::to_string(line + 1) + " Failed\n[rank 2] "));
  EXPECT_THAT(text, testing::Not(HasSubstr("[rank 0]")));
}

TEST_F(SelfTest, AnExceptionThatLeavesTheBodyFailsTheTestUnlessItWasAskedFor) {
  const auto body = [](const Rank& rank) {
    std::cerr << "about to fail\n";
    if (rank.rank == 0) throw CommError({.what = "rank 1 is gone"});
    throw std::out_of_range("nine");
  };
  spawn(2, body);
  const std::string text = reported_by([&] { TearDown(); });
  EXPECT_THAT(text, HasSubstr("[rank 0] an exception left its body: CommError: rank 1 is gone"));
  EXPECT_THAT(text, HasSubstr("nine"));
  EXPECT_THAT(text, HasSubstr("about to fail"));

  spawn(2, body);
  EXPECT_EQ(exit_code_of(0), kExitCommError);
  EXPECT_EQ(error_of(0), "CommError: rank 1 is gone");
  EXPECT_EQ(exit_code_of(1), kExitOtherException);
  EXPECT_THAT(output_of(1), HasSubstr("about to fail"));
}

TEST_F(SelfTest, ARankThatDiesOfASignalFailsTheTestUnlessTheTestKilledIt) {
  spawn(2, [](const Rank& rank) {
    if (rank.rank == 1) std::abort();
  });
  EXPECT_THAT(reported_by([&] { TearDown(); }), HasSubstr("[rank 1] left with code 134"));

  spawn(2, [](const Rank& rank) {
    rank.reach(1);
    if (rank.rank == 1) stuck_in_this_function();
  });
  ASSERT_TRUE(wait_for_stage(1, 1));
  kill_rank(1, SIGKILL);
  EXPECT_EQ(exit_code_of(1), 128 + SIGKILL);
  EXPECT_EQ(exit_code_of(0), kExitPassed);
}

TEST_F(SelfTest, AHangingRankIsReportedWithItsStackAndKilled) {
  spawn(2,
        [](const Rank& rank) {
          std::cout << "rank " << rank.rank << " was here" << std::endl;
          rank.reach(1);
          if (rank.rank == 1) stuck_in_this_function();
        },
        {.deadline = kShort});
  std::string text;
  const auto before = std::chrono::steady_clock::now();
  text = reported_by([&] { wait_all(); });
  EXPECT_LT(std::chrono::steady_clock::now() - before, seconds(60));
  EXPECT_THAT(text, HasSubstr("for the end of all ranks"));
  EXPECT_THAT(text, HasSubstr("[rank 1] is still running"));
  EXPECT_THAT(text, HasSubstr("stuck_in_this_function"));
  EXPECT_THAT(text, HasSubstr("rank 1 was here"));
  EXPECT_THAT(text, testing::Not(HasSubstr("[rank 0] is still running")));
  EXPECT_EQ(exit_code_of(1), 128 + SIGKILL);
}

TEST_F(SelfTest, WithoutADebuggerTheRankPrintsItsOwnStacks) {
  spawn(1,
        [](const Rank&) {
          std::thread other(stuck_in_this_function);
          other.join();
        },
        {.deadline = kShort});
  const std::string path = std::getenv("PATH");
  setenv("PATH", "/nowhere", 1);
  const std::string text = reported_by([&] { wait_all(); });
  setenv("PATH", path.c_str(), 1);
  EXPECT_THAT(text, HasSubstr("--- stack of a thread"));
  EXPECT_THAT(text, HasSubstr("stuck_in_this_function"));
}

TEST_F(SelfTest, AStoppedRankIsKilledAtTheDeadlineToo) {
  spawn(1, [](const Rank&) { stuck_in_this_function(); }, {.deadline = kShort});
  stop_rank(0);
  EXPECT_THAT(reported_by([&] { wait_all(); }), HasSubstr("[rank 0] is still running"));
  EXPECT_EQ(exit_code_of(0), 128 + SIGKILL);
}

uint64_t seed_of_this_rank = 0;

TEST_F(SelfTest, SeedsDifferBetweenRanksAndGroupsAndAreTheSameEachTime) {
  set_rank_setup([](uint64_t seed) { seed_of_this_rank = seed; });
  const auto own_seed = [](const Rank&) { return std::vector<uint64_t>{seed_of_this_rank}; };
  EXPECT_THAT(run_collect(2, own_seed), ElementsAre(ElementsAre(1000), ElementsAre(1001)));
  EXPECT_THAT(run_collect(2, own_seed), ElementsAre(ElementsAre(2000), ElementsAre(2001)));
  set_rank_setup(nullptr);
}

TEST_F(SelfTest, ASkipInARankSkipsTheTest) {
  spawn(1, [](const Rank&) { GTEST_SKIP() << "no such device"; });
  EXPECT_THAT(reported_by([&] { TearDown(); }), HasSubstr("[rank 0] no such device"));
}

TEST_F(SelfTest, RanksSeeEachOthersStagesAndTheResultsComeBackByRank) {
  const auto squares = run_collect(4, [](const Rank& rank) {
    rank.reach(1);
    for (int other = 0; other < rank.world_size; ++other) rank.wait_for(other, 1);
    return std::vector<double>(static_cast<size_t>(rank.rank), rank.rank * rank.rank + 0.5);
  });
  EXPECT_THAT(squares, ElementsAre(ElementsAre(), ElementsAre(1.5), ElementsAre(4.5, 4.5),
                                   ElementsAre(9.5, 9.5, 9.5)));
}

TEST_F(SelfTest, OnlyTheNamedRanksAreStarted) {
  spawn(3, [](const Rank&) {}, {.only = {0, 2}});
  EXPECT_EQ(exit_code_of(0), kExitPassed);
  EXPECT_EQ(exit_code_of(2), kExitPassed);
  EXPECT_THROW(exit_code_of(1), std::out_of_range);
}

}  // namespace
}  // namespace accelerate::test
