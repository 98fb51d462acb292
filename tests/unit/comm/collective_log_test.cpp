// What a rank says of its collectives: numbers, names, what is under way.
#include "comm/watch/collective_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/watch/group_list.h"

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
  log.end_wait(first);
  EXPECT_EQ(oldest_wait(*events, own)->text(), "broadcast");
  log.end_wait(second);
  EXPECT_FALSE(oldest_wait(*events, own));
  EXPECT_TRUE(oldest_wait(*events, {other.group()}));
  other.end_wait(of_other);
}

TEST_F(CollectiveLogs, TheEndOfAWaitHasTheNumberOfItsCollective) {
  EventStream::Reader reader(events);
  (void)log.begin(operation_event("first"));
  const auto first = log.begin_exchange();
  (void)log.begin(operation_event("second"));
  log.end_wait(first);
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
  fresh.end_wait(exchange);
}

TEST_F(CollectiveLogs, WhatEndsWithItsExchangeRunsNoLonger) {
  const int64_t number =
      log.begin(operation_event("all_reduce"), CollectiveLog::EndsWith::kExchange).number;
  const auto exchange = log.begin_exchange();
  EXPECT_EQ(log.oldest_running(), number);
  log.end_wait(exchange);
  EXPECT_EQ(log.oldest_running(), std::nullopt);
  const int64_t whole = log.begin(operation_event("backward")).number;
  log.end_wait(log.begin_exchange());
  EXPECT_EQ(log.oldest_running(), whole);
  log.end(whole);
  EXPECT_EQ(log.oldest_running(), std::nullopt);
}

TEST_F(CollectiveLogs, ARecordIsReadAsItWasWrittenOnOneLine) {
  const CollectiveRecord record{
      .sequence = 12, .operation = "a\nb [3]", .finished = false, .kind = 17};
  EXPECT_EQ(record.encode(), "12 0 17 a b [3]");
  const CollectiveRecord read = CollectiveRecord::decode(record.encode());
  EXPECT_EQ(read.sequence, 12);
  EXPECT_EQ(read.operation, "a b [3]");
  EXPECT_FALSE(read.finished);
  EXPECT_EQ(read.kind, 17U);
}

TEST_F(CollectiveLogs, TheKindOfACollectiveDoesNotDependOnWhatTheUserCalled) {
  log.enter("save_model");
  (void)log.begin(operation_event("all_gather Byte[8]"));
  const uint32_t inside = log.latest().kind;
  log.leave();
  (void)log.begin(operation_event("all_gather Byte[8]"));
  EXPECT_EQ(log.latest().kind, inside);
  EXPECT_EQ(log.latest().operation, "all_gather Byte[8]");
  (void)log.begin(operation_event("all_gather Byte[9]"));
  EXPECT_NE(log.latest().kind, inside);
}

TEST_F(CollectiveLogs, ExchangesAreNumberedInTheirGroupWhateverTheCollective) {
  CollectiveLog other(events);
  const auto exchange_and_operation = [&](CollectiveLog& of, uint32_t operation) {
    const auto wait = of.begin_exchange(operation);
    const std::optional<Event> shown = oldest_wait(*events, {of.group()});
    of.end_wait(wait);
    return std::pair(shown->exchange, shown->operation);
  };
  const uint32_t sum = operation_number("allreduce", 40);
  (void)log.begin(operation_event("backward"));
  EXPECT_EQ(exchange_and_operation(log, sum), std::pair(1U, sum));
  EXPECT_EQ(exchange_and_operation(log, sum), std::pair(2U, sum));
  EXPECT_EQ(exchange_and_operation(other, sum), std::pair(1U, sum));
  EXPECT_NE(operation_number("allreduce", 44), sum);
  EXPECT_NE(operation_number("allgather", 40), sum);
}

TEST_F(CollectiveLogs, AWaitThatIsNoExchangeIsNamedAndHasNoNumber) {
  log.enter("save_state");
  const auto wait = log.begin_wait("without_timeout");
  const auto exchange = log.begin_exchange();
  ASSERT_TRUE(oldest_wait(*events, {log.group()}));
  EXPECT_EQ(oldest_wait(*events, {log.group()})->text(), "save_state (without_timeout)");
  EXPECT_EQ(oldest_wait(*events, {log.group()})->exchange, 0U);
  log.end_wait(exchange);
  log.end_wait(wait);
  EXPECT_FALSE(oldest_wait(*events, {log.group()}));
  log.leave();
}

// What a backend that only orders streams gives: nobody is told when it is over.
TEST_F(CollectiveLogs, AWorkThatNobodyWaitsForIsAskedWhetherItIsOver) {
  const GroupEntry group{.log = std::make_shared<CollectiveLog>(events)};
  const auto start = [&](const bool& is_over) {
    const int64_t number =
        group.log->begin(operation_event("all_reduce"), CollectiveLog::EndsWith::kExchange).number;
    group.works->add(number, [&] { return is_over; });
    return number;
  };
  bool first_is_over = false, second_is_over = false;
  const int64_t first = start(first_is_over);
  const int64_t second = start(second_is_over);
  EXPECT_EQ(group.oldest_running(), first);
  second_is_over = true;
  EXPECT_EQ(group.oldest_running(), first);
  first_is_over = true;
  EXPECT_EQ(group.oldest_running(), std::nullopt);

  // One that cannot be asked, and one that was waited for and is asked no more.
  const int64_t broken =
      group.log->begin(operation_event("all_reduce"), CollectiveLog::EndsWith::kExchange).number;
  group.works->add(broken, []() -> bool { throw std::runtime_error("no device"); });
  EXPECT_EQ(group.oldest_running(), broken);
  group.works->remove(broken);
  group.log->end(broken);
  group.works->remove(second);
  EXPECT_EQ(group.oldest_running(), std::nullopt);
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
      while (!done) log.end_wait(log.begin_exchange());
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
