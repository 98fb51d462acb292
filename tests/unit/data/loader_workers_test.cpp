// Loaders with worker threads: same batches, errors in their place, an end without waiting.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>
#include <chrono>
#include <future>
#include <stdexcept>
#include <thread>
#include <vector>

#include "accelerate/data_loader.h"
#include "accelerate/dataset.h"
#include "accelerate/errors.h"

namespace accelerate {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

// Sample i is i; the earlier ones of a batch take longer than the later, so that workers overtake
// each other.
struct UnevenlySlow {
  size_t size() const { return 103; }
  int64_t get(size_t index) const {
    if (index % 7 == 0) std::this_thread::sleep_for(std::chrono::microseconds(300));
    return static_cast<int64_t>(index);
  }
};

template <class Loader>
std::vector<std::vector<int64_t>> batches_by_workers(const Loader& loader) {
  std::vector<std::vector<int64_t>> batches;
  for (auto& batch : loader) {
    const at::Tensor data = batch.data.to(at::kLong).contiguous();
    batches.emplace_back(data.data_ptr<int64_t>(), data.data_ptr<int64_t>() + data.numel());
  }
  return batches;
}

TEST(Workers, TheirNumberChangesNothing) {
  for (const bool shuffle : {false, true}) {
    const auto with = [&](int workers, int prefetch) {
      return batches_by_workers(data_loader(UnevenlySlow(), {.batch_size = 4,
                                                             .shuffle = shuffle,
                                                             .num_workers = workers,
                                                             .prefetch = prefetch,
                                                             .seed = 3}));
    };
    const auto alone = with(0, 2);
    EXPECT_EQ(alone.size(), 26u);
    for (const int workers : {1, 2, 5}) {
      for (const int prefetch : {1, 2, 16}) EXPECT_EQ(with(workers, prefetch), alone) << workers;
    }
  }
}

TEST(Workers, ReadNoFurtherAheadThanTheyMay) {
  struct Counting {
    std::shared_ptr<std::atomic<int>> reads = std::make_shared<std::atomic<int>>(0);
    size_t size() const { return 1000; }
    int64_t get(size_t index) const {
      ++*reads;
      return static_cast<int64_t>(index);
    }
  };
  const Counting dataset;
  auto loader = data_loader(dataset, {.batch_size = 1, .num_workers = 2, .prefetch = 3});
  auto it = loader.begin();
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (dataset.reads->load() < 6 && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  // The one in the loop and 2 * 3 ahead; workers rest until half of these are taken.
  EXPECT_GE(dataset.reads->load(), 6);
  EXPECT_LE(dataset.reads->load(), 7);
}

TEST(Workers, ReadWhileTheLoopWorks) {
  // The loop takes the second batch only after the dataset was asked for it: without a thread of
  // its own that would never happen.
  struct Signalling {
    std::shared_ptr<std::promise<void>> asked = std::make_shared<std::promise<void>>();
    size_t size() const { return 2; }
    int64_t get(size_t index) const {
      if (index == 1) asked->set_value();
      return static_cast<int64_t>(index);
    }
  };
  const Signalling dataset;
  auto asked = dataset.asked->get_future();
  for (auto& batch : data_loader(dataset, {.batch_size = 1, .num_workers = 1})) {
    if (batch.info().index > 0) break;
    EXPECT_EQ(asked.wait_for(std::chrono::seconds(30)), std::future_status::ready);
  }
}

struct FailsAt {
  size_t bad;
  size_t size() const { return 40; }
  int64_t get(size_t index) const {
    if (index == bad) throw std::runtime_error("disk gone");
    return static_cast<int64_t>(index);
  }
};

TEST(Workers, AnErrorComesOutInTheLoopAtItsPlaceWithTheSample) {
  for (const int workers : {0, 1, 3}) {
    auto loader = data_loader(FailsAt{17}, {.batch_size = 4, .num_workers = workers});
    std::vector<int64_t> seen;
    try {
      for (auto& batch : loader) seen.push_back(batch.info().index);
      FAIL() << "no error";
    } catch (const DataError& error) {
      EXPECT_EQ(error.message(), "sample 17 could not be read: disk gone");
      EXPECT_THROW(std::rethrow_if_nested(error), std::runtime_error);
    }
    EXPECT_THAT(seen, ElementsAre(0, 1, 2, 3)) << workers;
    EXPECT_EQ(loader.epoch(), 0);
  }
}

TEST(Workers, AnIteratorThatThrewHasEnded) {
  auto it = data_loader(FailsAt{1}, {.batch_size = 1, .num_workers = 2}).begin();
  EXPECT_THROW(++it, DataError);
  EXPECT_TRUE(it == std::default_sentinel);
  EXPECT_NO_THROW(++it);
}

TEST(Workers, ErrorsOfAWholeBatchNameItsSamples) {
  struct Batches {
    size_t size() const { return 20; }
    at::Tensor get_batch(c10::ArrayRef<size_t>) const { throw std::runtime_error("short read"); }
  };
  try {
    data_loader(Batches(), {.batch_size = 10, .num_workers = 1}).begin();
    FAIL() << "no error";
  } catch (const DataError& error) {
    EXPECT_EQ(error.message(),
              "the batch of samples 0, 1, 2, 3, 4, 5, 6, 7, ... (10 of them) could not be read: "
              "short read");
  }
}

TEST(Workers, LeavingTheLoopEndsThemAtOnce) {
  struct Counting {
    std::shared_ptr<std::atomic<int>> running = std::make_shared<std::atomic<int>>(0);
    size_t size() const { return 1'000'000; }
    int64_t get(size_t index) const {
      ++*running;
      std::this_thread::sleep_for(std::chrono::microseconds(50));
      --*running;
      return static_cast<int64_t>(index);
    }
  };
  const Counting dataset;
  for (auto& batch : data_loader(dataset, {.batch_size = 1, .num_workers = 3})) {
    if (batch.info().index == 5) break;
  }
  EXPECT_EQ(dataset.running->load(), 0);
}

TEST(Workers, DoNotFinishABatchThatNobodyWaitsFor) {
  // One batch would take 50 s.
  struct Slow {
    std::shared_ptr<std::atomic<int>> reads = std::make_shared<std::atomic<int>>(0);
    size_t size() const { return 1'000'000; }
    int64_t get(size_t index) const {
      ++*reads;
      std::this_thread::sleep_for(std::chrono::microseconds(50));
      return static_cast<int64_t>(index);
    }
  };
  const auto dataset = std::make_shared<Slow>();
  using Maker = detail::MapMaker<Slow, detail::DefaultCollate>;
  {
    detail::WorkerFeed<Maker> feed(
        Maker(dataset, std::make_shared<detail::DefaultCollate>(),
              {.samples = 1'000'000, .options = {.batch_size = 1'000'000}}),
        2, 1);
    while (dataset->reads->load() == 0) std::this_thread::yield();
  }
  EXPECT_LT(dataset->reads->load(), 500'000);
}

TEST(Workers, ManyPassesAndEarlyEndsLeaveNothingBehind) {
  auto loader = data_loader(UnevenlySlow(), {.batch_size = 2, .shuffle = true, .num_workers = 3});
  for (int round = 0; round < 200; ++round) {
    int left = round % 9;
    for (auto& batch : loader) {
      EXPECT_EQ(batch.info().index, round % 9 - left);
      if (left-- == 0) break;
    }
  }
  EXPECT_EQ(loader.epoch(), 0);
}

TEST(Workers, NestedLoopsHaveWorkersOfTheirOwn) {
  auto loader = data_loader(UnevenlySlow(), {.batch_size = 20, .num_workers = 2});
  std::vector<int64_t> outer;
  for (auto& batch : loader) {
    outer.push_back(batch.data[0].item<int64_t>());
    std::vector<int64_t> inner;
    for (auto& nested : loader) inner.push_back(nested.data[0].item<int64_t>());
    EXPECT_THAT(inner, ElementsAre(0, 20, 40, 60, 80, 100));
  }
  EXPECT_THAT(outer, ElementsAre(0, 20, 40, 60, 80, 100));
}

TEST(Workers, RandomSamplesDependOnSeedEpochAndIndexAlone) {
  struct Noise {
    size_t size() const { return 30; }
    at::Tensor get(size_t, at::Generator& random) const { return at::rand({2}, random); }
  };
  const auto pass = [](int workers, int64_t epoch, uint64_t seed) {
    auto loader = data_loader(Noise(), {.batch_size = 4, .num_workers = workers, .seed = seed});
    loader.set_epoch(epoch);
    std::vector<at::Tensor> all;
    for (auto& batch : loader) all.push_back(batch.data);
    return at::cat(all);
  };
  const at::Tensor first = pass(0, 0, 5);
  EXPECT_TRUE(at::equal(first, pass(3, 0, 5)));
  EXPECT_FALSE(at::equal(first, pass(0, 1, 5)));
  EXPECT_FALSE(at::equal(first, pass(0, 0, 6)));
  EXPECT_GT((first[0] - first[1]).abs().sum().item<double>(), 0);
  // A rank sees the same noise on its samples as a process that sees them all.
  auto loader = data_loader(Noise(), {.batch_size = 4, .seed = 5});
  auto second = loader.sharded({.rank = 1, .world_size = 2, .seed = 5});
  EXPECT_TRUE(at::equal(second.begin()->data, first.narrow(0, 4, 4)));
}

TEST(Workers, OperationsOfAWorkerUseNoOtherThreads) {
  struct AsksThreads {
    size_t size() const { return 4; }
    int64_t get(size_t) const { return at::get_num_threads(); }
  };
  const int before = at::get_num_threads();
  at::set_num_threads(3);
  for (auto& batch : data_loader(AsksThreads(), {.batch_size = 4, .num_workers = 2})) {
    EXPECT_TRUE(batch.data.eq(1).all().item<bool>()) << batch.data;
  }
  EXPECT_EQ(at::get_num_threads(), 3);
  std::thread([] { EXPECT_EQ(at::get_num_threads(), 3); }).join();
  at::set_num_threads(before);
}

TEST(Workers, NumbersThatMakeNoSenseAreRefused) {
  EXPECT_THROW(data_loader(UnevenlySlow(), {.num_workers = -1}), UsageError);
  EXPECT_THROW(data_loader(UnevenlySlow(), {.num_workers = 1, .prefetch = 0}), UsageError);
}

}  // namespace
}  // namespace accelerate
