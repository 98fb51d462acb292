// What fails on one rank is thrown on all of them, in words that say where it happened.
#include "comm/agreement.h"

#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "comm/watch/alarm.h"
#include "multiproc/group.h"
#include "support/error_of.h"

namespace accelerate::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

struct Together : Ranks {};

TEST(Fields, HoldAnyBytes) {
  const std::vector<std::string> texts{std::string("a\0b", 3), "", "3:c"};
  EXPECT_EQ(comm::from_fields(comm::to_fields(texts)), texts);
  EXPECT_THAT(comm::from_fields(""), ElementsAre());
}

TEST(Alarms, CallThoseWhoStillListen) {
  comm::Alarm alarm;
  int calls = 0;
  const auto count = [&](const std::exception_ptr&) { ++calls; };
  const auto held = alarm.listen(count);
  (void)alarm.listen(count);
  EXPECT_NO_THROW(alarm.require_silence());
  alarm.ring("gone");
  EXPECT_EQ(calls, 1);
  const auto late = alarm.listen(count);
  EXPECT_EQ(calls, 2);
  EXPECT_ANY_THROW(alarm.require_silence());
}

TEST_F(Together, WorkThatGoesWellGivesTheResultsOfAllRanks) {
  run(3, [](const Rank& rank) {
    Group group;
    comm::together(group.comm, [] {});
    const std::string own = rank.rank == 1 ? "" : std::string("of ") + std::to_string(rank.rank);
    EXPECT_THAT(comm::gather_together(group.comm, [&] { return own; }),
                ElementsAre("of 0", "", "of 2"));
    EXPECT_EQ(comm::broadcast_together(group.comm, 2, [&] { return own; }), "of 2");
    EXPECT_EQ(comm::broadcast_together(group.comm, 1, [&] { return own; }), "");
  });
}

TEST_F(Together, EachKindOfErrorIsTheSameOnAllRanksWithTheRankWhereItHappened) {
  run(3, [](const Rank& rank) {
    Group group;
    const auto fail_on_1 = [&](auto error) {
      comm::together(group.comm, [&] {
        if (rank.rank == 1) throw error;
      });
    };
    const ErrorInfo info{.what = "it broke", .where = "here", .hint = "mend it"};
    const std::string rest = "Error: it broke\n  at   here\n  try  mend it";
    EXPECT_EQ(error_text<UsageError>([&] { fail_on_1(UsageError(info)); }),
              "[rank 1 of 3] Usage" + rest);
    EXPECT_EQ(error_text<ConfigError>([&] { fail_on_1(ConfigError(info)); }),
              "[rank 1 of 3] Config" + rest);
    EXPECT_EQ(error_text<DataError>([&] { fail_on_1(DataError(info)); }),
              "[rank 1 of 3] Data" + rest);
    EXPECT_EQ(error_text<CheckpointError>([&] { fail_on_1(CheckpointError(info)); }),
              "[rank 1 of 3] Checkpoint" + rest);
    EXPECT_EQ(error_text<CommError>([&] { fail_on_1(CommError(info)); }),
              "[rank 1 of 3] Comm" + rest);
    EXPECT_EQ(error_text<CommError>([&] { fail_on_1(std::bad_alloc()); }),
              "[rank 1 of 3] CommError: out of memory");
    EXPECT_EQ(error_text<CommError>([&] { fail_on_1(std::out_of_range("too far")); }),
              "[rank 1 of 3] CommError: too far");
    EXPECT_THAT(error_text<CommError>([&] { fail_on_1(7); }),
                HasSubstr("an exception that is not a std::exception"));
    group.comm.barrier();  // the group goes on
  });
}

TEST_F(Together, OfSeveralErrorsTheFirstCountsAndARankMayKeepItsOwn) {
  run(3, [](const Rank& rank) {
    Group group;
    const auto fail = [&] {
      if (rank.rank > 0) throw DataError({.what = "mine " + std::to_string(rank.rank)});
    };
    EXPECT_EQ(error_text<DataError>([&] { comm::together(group.comm, fail); }),
              "[rank 1 of 3] DataError: mine 1");
    const std::string kept =
        error_text<DataError>([&] { comm::together(group.comm, fail, {.keep_own = true}); });
    EXPECT_EQ(kept, rank.rank == 2   ? "DataError: mine 2"
                    : rank.rank == 1 ? "DataError: mine 1"
                                     : "[rank 1 of 3] DataError: mine 1");
  });
}

TEST_F(Together, AnErrorToldAtAPlaceNamesTheRanksThatHaveItUnlessAllDo) {
  run(3, [](const Rank& rank) {
    Group group;
    const auto told = [&](int first) {
      return group_usage_error([&] {
        comm::together(group.comm,
                       [&] {
                         if (rank.rank >= first)
                           throw UsageError({.what = "no rows", .hint = "add some"});
                       },
                       {.retell = comm::told_at("the test")});
      });
    };
    const std::string rest = "no rows\n  at   the test\n  try  add some";
    const std::string here = "[rank " + std::to_string(rank.rank) + " of 3] UsageError: ";
    EXPECT_EQ(told(2), here + "on rank 2: " + rest);
    EXPECT_EQ(told(1), here + "on ranks 1 and 2: " + rest);
    EXPECT_EQ(told(0), here + rest);
  });
}

TEST_F(Together, WhatARootCannotMakeIsThrownOnAllRanks) {
  run(2, [](const Rank&) {
    Group group;
    const auto make = []() -> std::string { throw DataError({.what = "not here"}); };
    EXPECT_EQ(error_text<DataError>([&] { (void)comm::broadcast_together(group.comm, 1, make); }),
              "[rank 1 of 2] DataError: not here");
  });
}

TEST_F(Together, AllRanksTakeBackBeforeOneOfThemThrows) {
  run(2, [](const Rank& rank) {
    Group group;
    bool is_taken_back = false;
    EXPECT_THAT(error_text<CommError>([&] {
                  comm::together(group.comm,
                                 [&] {
                                   if (rank.rank == 0) throw std::runtime_error("no");
                                 },
                                 {.without_timeout = true, .take_back = [&] {
                                    is_taken_back = true;
                                    rank.reach(1);
                                  }});
                }),
                StartsWith("[rank 0 of 2] CommError: no"));
    EXPECT_TRUE(is_taken_back);
    EXPECT_EQ(rank.stage_of(1 - rank.rank), 1);
  });
}

TEST_F(Together, TheFirstDifferenceFromRankZeroIsDescribedOnAllRanks) {
  run(3, [](const Rank& rank) {
    Group group;
    const auto describe = [](const comm::RankDifference& difference) {
      return ErrorInfo{.what = std::to_string(difference.rank) + " has " + difference.other +
                               ", not " + difference.first};
    };
    comm::require_same(group.comm, "the same", describe);
    EXPECT_THAT(group_usage_error(
                    [&] { comm::require_same(group.comm, rank.rank == 1 ? "b" : "a", describe); }),
                HasSubstr("UsageError: 1 has b, not a"));
    EXPECT_THAT(group_usage_error([&] {
                  comm::require_same(group.comm,
                                     {{"the size", "4"},
                                      {"the name", rank.rank == 2 ? "y" : "x"},
                                      {"the end", std::to_string(rank.rank)}},
                                     "the test");
                }),
                HasSubstr("ranks differ: the end is 0 on rank 0 and 1 on rank 1"));
    EXPECT_THAT(
        group_usage_error([&] {
          comm::require_same(
              group.comm,
              std::vector<comm::Fact>{{"the size", "4"}, {"the name", rank.rank == 2 ? "" : "x"}},
              "the test");
        }),
        HasSubstr("ranks differ: the name is x on rank 0 and  on rank 2"));
  });
}

TEST(RankFailures, AreReadAsTheyWereWritten) {
  const auto error = std::make_exception_ptr(
      ConfigError({.what = "an unknown key", .where = "line 3", .hint = "leave it out"}));
  const comm::RankFailure read =
      comm::decode_failure(comm::encode(comm::failure_of(error)) + std::string(9, '\0'), 5);
  EXPECT_EQ(read.kind, comm::ErrorKind::kConfig);
  EXPECT_EQ(read.info.what, "an unknown key");
  EXPECT_EQ(read.info.where, "line 3");
  EXPECT_EQ(read.info.hint, "leave it out");
  EXPECT_EQ(read.rank, 5);
  EXPECT_EQ(comm::text_of(error), "an unknown key (line 3)");
}

}  // namespace
}  // namespace accelerate::test
