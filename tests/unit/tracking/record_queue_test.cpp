// The queue between those who log and the one that writes.
#include "tracking/record_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

namespace accelerate::tracking {
namespace {

TEST(RecordQueue, GivesRecordsBackInTheirOrderAndRefusesWhenItIsFull) {
  RecordQueue queue(3);
  EXPECT_EQ(queue.capacity(), 4U);
  EXPECT_EQ(queue.front(), nullptr);
  for (int round = 0; round < 5; ++round) {
    for (int64_t i = 0; i < 4; ++i) {
      EXPECT_TRUE(queue.push([&](Record& record) { record.add("x").value = i; }));
    }
    EXPECT_FALSE(queue.push([](Record&) { FAIL() << "filled though it is full"; }));
    EXPECT_EQ(queue.size(), 4U);
    for (int64_t i = 0; i < 4; ++i) {
      ASSERT_NE(queue.front(), nullptr);
      EXPECT_EQ(queue.front()->values[0].value.number(), static_cast<double>(i));
      queue.pop();
    }
    EXPECT_EQ(queue.front(), nullptr);
  }
  EXPECT_EQ(queue.pushed(), 20U);
  EXPECT_EQ(queue.popped(), 20U);
}

TEST(RecordQueue, RecordThatCouldNotBeFilledIsEmpty) {
  RecordQueue queue(2);
  EXPECT_THROW(queue.push([](Record& record) {
    record.kind = RecordKind::kValues;
    record.add("half");
    throw std::runtime_error("no more");
  }),
               std::runtime_error);
  ASSERT_NE(queue.front(), nullptr);
  EXPECT_EQ(queue.front()->kind, RecordKind::kNothing);
  EXPECT_EQ(queue.front()->value_count, 0U);
}

TEST(RecordQueue, ThreadsThatPushTogetherLoseNothing) {
  constexpr int kThreads = 4;
  constexpr int64_t kEach = 20000;
  RecordQueue queue(64);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&queue, thread] {
      for (int64_t i = 0; i < kEach;) {
        const bool taken = queue.push([&](Record& record) {
          record.tracker = thread;
          record.at.step = i;
        });
        if (taken) ++i;
        if (!taken) std::this_thread::yield();
      }
    });
  }
  std::vector<int64_t> next(kThreads);
  for (int64_t seen = 0; seen < kThreads * kEach;) {
    const Record* record = queue.front();
    if (record == nullptr) {
      std::this_thread::yield();
      continue;
    }
    ASSERT_EQ(*record->at.step, next[static_cast<size_t>(record->tracker)]++);
    queue.pop();
    ++seen;
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(queue.front(), nullptr);
}

}  // namespace
}  // namespace accelerate::tracking
