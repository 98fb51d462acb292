// Who ends when, of ranks that have learnt that their group cannot go on. The watches are those of
// three ranks in one process, which share a store; the test itself is one that is slow.
#include "comm/watch/peer_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <future>
#include <memory>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <utility>

#include "comm/watch/watch_store.h"

namespace accelerate::comm {
namespace {

using Clock = std::chrono::steady_clock;

struct PeerWatches : testing::Test {
  static constexpr int kRanks = 3;

  static RankEnvironment environment(int rank) { return {.rank = rank, .world_size = kRanks}; }

  std::unique_ptr<PeerWatch> watch_of(
      int rank, std::shared_ptr<Alarm> alarm = std::make_shared<Alarm>()) const {
    return std::make_unique<PeerWatch>(store, groups, events, std::move(alarm), environment(rank));
  }

  // Returns when `ready` holds; false, and a failure, if that takes too long.
  template <class Condition>
  static bool wait_until(Condition ready) {
    const auto give_up = Clock::now() + std::chrono::seconds(20);
    while (!ready() && Clock::now() < give_up) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return ready();
  }

  const c10::intrusive_ptr<c10d::Store> store = c10::make_intrusive<c10d::HashStore>();
  const std::shared_ptr<EventStream> events = std::make_shared<EventStream>();
  const std::shared_ptr<GroupList> groups = std::make_shared<GroupList>();
  const std::shared_ptr<const GroupEntry> group = std::make_shared<const GroupEntry>(GroupEntry{
      .name = "all", .ranks = {0, 1, 2}, .log = std::make_shared<CollectiveLog>(events)});
};

// The process of rank 0 may end when it knows, and with it the store, from which the others learn.
TEST_F(PeerWatches, RankZeroTellsItsUserWhenTheOthersKnow) {
  std::atomic<bool> knows = false;
  const auto alarm_0 = std::make_shared<Alarm>();
  const auto listening = alarm_0->listen([&](const std::exception_ptr&) { knows = true; });
  const auto watch_0 = watch_of(0, alarm_0);
  const auto watch_1 = watch_of(1);
  WatchStore slow(store, 2, kRanks);
  auto told = std::async(std::launch::async, [&] {
    return watch_1->tell_all({.what = "the ranks part", .misused = "prepare"});
  });
  ASSERT_TRUE(wait_until([&] { return store->add("informed", 0) == kRanks - 1; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // in which a hasty rank 0 would end
  EXPECT_FALSE(knows);
  slow.count_as_informed();
  EXPECT_TRUE(wait_until([&] { return knows.load(); }));
  EXPECT_EQ(watch_0->explain_failure(group, 1).what, "the ranks part");
  EXPECT_EQ(told.get().misused, "prepare");
}

}  // namespace
}  // namespace accelerate::comm
