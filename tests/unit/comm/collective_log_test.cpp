// What a rank says of its collectives: numbers, names, what is under way.
#include "comm/collective_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace accelerate::comm {
namespace {

using testing::AnyOf;
using testing::Eq;

struct CollectiveLogs : testing::Test {
  const std::shared_ptr<EventStream> events = std::make_shared<EventStream>();
  CollectiveLog log{events};
};

TEST_F(CollectiveLogs, TheLatestIsKnownWhileItRunsAndAfterwards) {
  EXPECT_EQ(log.latest().sequence, 0);
  EXPECT_EQ(log.latest().operation, "nothing yet");
  EXPECT_TRUE(log.latest().finished);
  const Event begun = log.begin(operation_event("broadcast from ").append(int64_t{2}));
  EXPECT_EQ(begun.number, 1);
  EXPECT_EQ(begun.text(), "broadcast from 2");
  EXPECT_EQ(log.latest().sequence, 1);
  EXPECT_FALSE(log.latest().finished);
  log.end(begun.number);
  EXPECT_EQ(log.latest().operation, "broadcast from 2");
  EXPECT_TRUE(log.latest().finished);
}

TEST_F(CollectiveLogs, OfSeveralUnderWayTheOldestAndTheLatestAreKnown) {
  EXPECT_EQ(log.oldest_running(), std::nullopt);
  const int64_t first = log.begin(operation_event("first")).number;
  const int64_t second = log.begin(operation_event("second")).number;
  EXPECT_EQ(log.oldest_running(), first);
  log.end(first);
  EXPECT_EQ(log.oldest_running(), second);
  EXPECT_EQ(log.latest().operation, "second");
  EXPECT_FALSE(log.latest().finished);
  log.end(second);
  EXPECT_EQ(log.oldest_running(), std::nullopt);
  EXPECT_TRUE(log.latest().finished);
}

TEST_F(CollectiveLogs, ActivitiesNameWhatTheUserCalledTheOutermostFirst) {
  log.enter("save_state");
  log.enter("inside");
  EXPECT_EQ(log.begin(operation_event("barrier")).text(), "save_state (barrier)");
  EXPECT_EQ(log.begin(operation_event("save_state")).text(), "save_state");
  log.leave();
  EXPECT_EQ(log.begin(operation_event("barrier")).text(), "save_state (barrier)");
  log.leave();
  EXPECT_EQ(log.begin(operation_event("barrier")).text(), "barrier");
  EXPECT_EQ(log.latest().sequence, 4);
}

TEST_F(CollectiveLogs, AWaitKeepsTheNameOfItsCollectiveAndCountsForItsGroupAlone) {
  CollectiveLog other(events);
  const std::vector<uint16_t> own{log.group()};
  EXPECT_FALSE(oldest_wait(*events, own));
  const auto of_other = other.begin_exchange();
  (void)log.begin(operation_event("all_reduce"));
  const auto first = log.begin_exchange();
  (void)log.begin(operation_event("broadcast"));
  const auto second = log.begin_exchange();
  ASSERT_TRUE(oldest_wait(*events, own));
  EXPECT_EQ(oldest_wait(*events, own)->text(), "all_reduce");
  EXPECT_EQ(oldest_wait(*events, own)->number, 1);
  log.end_exchange(first);
  EXPECT_EQ(oldest_wait(*events, own)->text(), "broadcast");
  log.end_exchange(second);
  EXPECT_FALSE(oldest_wait(*events, own));
  EXPECT_TRUE(oldest_wait(*events, {other.group()}));
  other.end_exchange(of_other);
}

TEST_F(CollectiveLogs, TheEndOfAWaitHasTheNumberOfItsCollective) {
  EventStream::Reader reader(events);
  (void)log.begin(operation_event("first"));
  const auto first = log.begin_exchange();
  (void)log.begin(operation_event("second"));
  log.end_exchange(first);
  std::vector<int64_t> numbers;
  for (Event event; reader.next(event);) {
    if (event.kind == EventKind::kWaitEnd) numbers.push_back(event.number);
  }
  EXPECT_THAT(numbers, testing::ElementsAre(1));
}

TEST_F(CollectiveLogs, AWaitBeforeTheFirstCollectiveShowsNothingOfAnotherGroup) {
  {
    CollectiveLog gone(events);
    (void)gone.begin(operation_event("theirs"));
    (void)gone.begin(operation_event("theirs"));
  }
  CollectiveLog fresh(events);  // has the lines of the one before
  const auto exchange = fresh.begin_exchange();
  EXPECT_EQ(exchange.number, 0);
  EXPECT_EQ(oldest_wait(*events, {fresh.group()})->text(), "");
  fresh.end_exchange(exchange);
}

TEST_F(CollectiveLogs, WhatEndsWithItsExchangeRunsNoLonger) {
  const int64_t number =
      log.begin(operation_event("all_reduce"), CollectiveLog::EndsWith::kExchange).number;
  const auto exchange = log.begin_exchange();
  EXPECT_EQ(log.oldest_running(), number);
  log.end_exchange(exchange);
  EXPECT_EQ(log.oldest_running(), std::nullopt);
  const int64_t whole = log.begin(operation_event("backward")).number;
  log.end_exchange(log.begin_exchange());
  EXPECT_EQ(log.oldest_running(), whole);
  log.end(whole);
  EXPECT_EQ(log.oldest_running(), std::nullopt);
}

TEST_F(CollectiveLogs, ARecordIsReadAsItWasWrittenOnOneLine) {
  const CollectiveRecord record{.sequence = 12, .operation = "a\nb [3]", .finished = false};
  EXPECT_EQ(record.encode(), "12 0 a b [3]");
  const CollectiveRecord read = CollectiveRecord::decode(record.encode());
  EXPECT_EQ(read.sequence, 12);
  EXPECT_EQ(read.operation, "a b [3]");
  EXPECT_FALSE(read.finished);
}

TEST(CollectiveLogsOfManyGroups, AreNotShownWhereTheBoardIsFull) {
  const auto events = std::make_shared<EventStream>();
  std::vector<std::unique_ptr<CollectiveLog>> logs;
  while (logs.empty() || logs.back()->is_shown()) {
    ASSERT_LE(logs.size(), static_cast<size_t>(EventStream::kLines));
    logs.push_back(std::make_unique<CollectiveLog>(events));
  }
  logs.clear();
  EXPECT_TRUE(CollectiveLog(events).is_shown());
}

// One thread makes the collectives, those of backends begin and end exchanges, and one watches.
// For ThreadSanitizer.
TEST_F(CollectiveLogs, ThreadsOfBackendsAndTheWatchMeetInIt) {
  constexpr int kCollectives = 5000;
  std::atomic<bool> done = false;
  std::thread watch([&] {
    while (!done) {
      const CollectiveRecord record = log.latest();
      EXPECT_THAT(record.operation,
                  AnyOf(Eq("nothing yet"), Eq("loop (even)"), Eq("loop (odd one)")));
      (void)log.oldest_running();
      if (const auto wait = oldest_wait(*events, {log.group()})) {
        EXPECT_THAT(std::string(wait->text()),
                    AnyOf(Eq(""), Eq("loop (even)"), Eq("loop (odd one)")));
      }
    }
  });
  std::vector<std::thread> backends;
  for (int i = 0; i < 4; ++i) {
    backends.emplace_back([&] {
      while (!done) log.end_exchange(log.begin_exchange());
    });
  }
  log.enter("loop");
  for (int i = 0; i < kCollectives; ++i) {
    log.end(log.begin(operation_event(i % 2 == 0 ? "even" : "odd one")).number);
  }
  done = true;
  watch.join();
  for (std::thread& backend : backends) backend.join();
  log.leave();
  EXPECT_EQ(log.latest().sequence, kCollectives);
  EXPECT_EQ(log.oldest_running(), std::nullopt);
}

TEST(CollectiveLogsOfDevices, WhatADeviceStillWorksOnRunsAlthoughItsCallHasEnded) {
  CollectiveLog log(std::make_shared<EventStream>());
  const Event begun = log.begin(operation_event("all_reduce sum"));
  log.end(begun.number);
  EXPECT_EQ(log.oldest_running(), std::nullopt);
  EXPECT_TRUE(log.latest().finished);
  log.set_on_device(begun.number);
  const Event later = log.begin(operation_event("barrier"));
  EXPECT_EQ(log.oldest_running(), begun.number);
  log.end(later.number);
  EXPECT_FALSE(log.latest().finished);
  log.set_on_device(0);
  EXPECT_EQ(log.oldest_running(), std::nullopt);
  EXPECT_TRUE(log.latest().finished);
}

}  // namespace
}  // namespace accelerate::comm
