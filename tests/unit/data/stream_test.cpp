#include "accelerate/stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>
#include <list>
#include <ranges>
#include <sstream>
#include <vector>

#include "accelerate/data_loader.h"
#include "accelerate/dataset.h"
#include "accelerate/errors.h"

namespace accelerate {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

template <class Loader>
std::vector<std::vector<int64_t>> streamed_batches(const Loader& loader) {
  std::vector<std::vector<int64_t>> batches;
  for (auto& batch : loader) {
    const at::Tensor data = batch.data.to(at::kLong).contiguous();
    batches.emplace_back(data.data_ptr<int64_t>(), data.data_ptr<int64_t>() + data.numel());
  }
  return batches;
}

const auto kThreeTwos = ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3), ElementsAre(4));

TEST(Stream, AnyRangeIsOne) {
  EXPECT_THAT(streamed_batches(data_loader(std::views::iota(0, 5), {.batch_size = 2})), kThreeTwos);
  EXPECT_THAT(streamed_batches(data_loader(std::list<int>{0, 1, 2, 3, 4}, {.batch_size = 2})),
              kThreeTwos);
  auto squares = std::views::iota(0, 3) | std::views::transform([](int i) { return i * i; });
  EXPECT_THAT(streamed_batches(data_loader(squares, {.batch_size = 3})),
              ElementsAre(ElementsAre(0, 1, 4)));
}

TEST(Stream, ARangeIsWalkedAnewInEachPass) {
  auto loader = data_loader(std::views::iota(0, 5), {.batch_size = 2});
  EXPECT_THAT(streamed_batches(loader), kThreeTwos);
  EXPECT_THAT(streamed_batches(loader), kThreeTwos);
  EXPECT_EQ(loader.epoch(), 2);
}

TEST(Stream, ARangeThatCanBeReadOnceSaysSoTheSecondTime) {
  auto input = std::make_shared<std::istringstream>("0 1 2 3 4");
  auto once = stream(
      std::ranges::subrange(std::istream_iterator<int>(*input), std::istream_iterator<int>()));
  auto loader = data_loader(once, {.batch_size = 2});
  EXPECT_THAT(streamed_batches(loader), kThreeTwos);
  EXPECT_THROW(streamed_batches(loader), DataError);
}

TEST(Stream, AFunctionGivesSampleAfterSample) {
  auto counter = std::make_shared<int>(0);
  auto loader = data_loader(stream([counter]() -> std::optional<int> {
                              if (*counter % 6 == 5) return ++*counter, std::nullopt;
                              return (*counter)++;
                            }),
                            {.batch_size = 2});
  EXPECT_THAT(streamed_batches(loader), kThreeTwos);
  EXPECT_THAT(streamed_batches(loader),
              ElementsAre(ElementsAre(6, 7), ElementsAre(8, 9), ElementsAre(10)));
}

TEST(Stream, AFunctionOfTheEpochOpensEachPass) {
  auto ranges = stream([](int64_t epoch) { return std::views::iota(10 * epoch, 10 * epoch + 2); });
  auto loader = data_loader(ranges, {.batch_size = 2});
  EXPECT_THAT(streamed_batches(loader), ElementsAre(ElementsAre(0, 1)));
  EXPECT_THAT(streamed_batches(loader), ElementsAre(ElementsAre(10, 11)));
  auto functions = stream([](int64_t epoch) {
    return [left = epoch + 1]() mutable -> std::optional<int64_t> {
      if (left == 0) return std::nullopt;
      return left--;
    };
  });
  auto counting = data_loader(functions, {.batch_size = 2});
  EXPECT_THAT(streamed_batches(counting), ElementsAre(ElementsAre(1)));
  EXPECT_THAT(streamed_batches(counting), ElementsAre(ElementsAre(2, 1)));
}

TEST(Stream, KnowsItsLengthWhereTheRangeDoes) {
  EXPECT_EQ(data_loader(std::views::iota(0, 5), {.batch_size = 2}).size(), 3);
  auto unknown = stream([]() -> std::optional<int> { return std::nullopt; });
  EXPECT_THROW(data_loader(unknown, {.batch_size = 2}).size(), DataError);
  auto told = stream([]() -> std::optional<int> { return std::nullopt; }, 7);
  EXPECT_EQ(data_loader(told, {.batch_size = 2, .drop_last = true}).size(), 3);
}

TEST(Stream, AnEmptyOneYieldsNothing) {
  auto loader = data_loader(std::views::iota(0, 0), {.batch_size = 2});
  EXPECT_THAT(streamed_batches(loader), IsEmpty());
  EXPECT_THAT(streamed_batches(loader.sharded({.rank = 1, .world_size = 3})), IsEmpty());
}

TEST(Stream, IsNotReadAfterItsEnd) {
  auto ended = std::make_shared<bool>(false);
  auto loader = data_loader(stream([ended](int64_t) {
                              return [ended, left = 3]() mutable -> std::optional<int> {
                                EXPECT_FALSE(*ended);
                                *ended = left == 0;
                                return left == 0 ? std::nullopt : std::optional(left--);
                              };
                            }),
                            {.batch_size = 2});
  EXPECT_THAT(streamed_batches(loader), ElementsAre(ElementsAre(3, 2), ElementsAre(1)));
}

TEST(Stream, RanksTakeTheirSlotsOfEachRound) {
  auto loader = data_loader(std::views::iota(0, 11), {.batch_size = 2});
  EXPECT_THAT(streamed_batches(loader.sharded({.rank = 1, .world_size = 2})),
              ElementsAre(ElementsAre(2, 3), ElementsAre(6, 7), ElementsAre(10, 0)));
  EXPECT_THAT(streamed_batches(loader.sharded({.rank = 1, .world_size = 2, .even_batches = false})),
              ElementsAre(ElementsAre(2, 3), ElementsAre(6, 7), ElementsAre(10)));
}

TEST(Stream, WorkersReadAheadInOrder) {
  for (const int workers : {1, 3}) {
    auto loader = data_loader(std::views::iota(0, 1001), {.batch_size = 4, .num_workers = workers});
    const auto batches = streamed_batches(loader);
    ASSERT_EQ(batches.size(), 251u);
    for (size_t i = 0; i < batches.size(); ++i) EXPECT_EQ(batches[i][0], 4 * int64_t(i));
  }
}

TEST(Stream, AnErrorNamesTheSampleOfTheStream) {
  auto failing = stream([](int64_t) {
    return [at = 0]() mutable -> std::optional<int> {
      if (at == 5) throw std::runtime_error("line torn");
      return at++;
    };
  });
  for (const int workers : {0, 2}) {
    try {
      streamed_batches(data_loader(failing, {.batch_size = 2, .num_workers = workers}));
      FAIL() << "no error";
    } catch (const DataError& error) {
      EXPECT_EQ(error.message(), "sample 5 could not be read: line torn");
    }
  }
}

TEST(Stream, AnErrorComesInThePlaceOfItsBatch) {
  for (const int workers : {0, 1, 2}) {
    auto failing = stream([](int64_t) {
      return [at = 0]() mutable -> std::optional<int> {
        if (at == 5) throw std::runtime_error("line torn");
        return at++;
      };
    });
    auto loader = data_loader(failing, {.batch_size = 2, .num_workers = workers});
    std::vector<int64_t> seen;
    EXPECT_THROW(
        for (auto& batch
             : loader) {
          EXPECT_FALSE(batch.info().is_last);
          seen.push_back(batch.data[0].item<int64_t>());
        },
        DataError);
    EXPECT_THAT(seen, ElementsAre(0, 2)) << workers;
    EXPECT_EQ(loader.state_dict().position, 4);
  }
}

TEST(Stream, WhatTheLoopDoesToABatchDoesNotShowInThePadding) {
  const std::vector<at::Tensor> samples{at::zeros(1), at::ones(1), at::full(1, 2.0)};
  const auto first_of = [](std::vector<at::Tensor> batch) { return batch; };
  auto loader = data_loader(stream(samples), {.batch_size = 2}, first_of)
                    .sharded({.rank = 1, .world_size = 2});
  for (auto& batch : loader) {
    EXPECT_EQ(batch[0].item<double>(), 2.0);
    EXPECT_EQ(batch[1].item<double>(), 0.0);  // the first sample of the pass
  }
  auto own = data_loader(stream(samples), {.batch_size = 2}, first_of)
                 .sharded({.rank = 0, .world_size = 2, .split_batches = true});
  std::vector<double> seen;
  for (auto& batch : own) {
    seen.push_back(batch[0].item<double>());
    batch[0].add_(100);
  }
  EXPECT_THAT(seen, ElementsAre(0.0, 2.0));
}

TEST(Stream, AFarSkipDoesNotOverflow) {
  auto loader = data_loader(std::views::iota(0, 5), {.batch_size = 2});
  EXPECT_THAT(streamed_batches(loader.skip_first_batches(std::numeric_limits<int64_t>::max())),
              IsEmpty());
  EXPECT_THROW(loader.skip_first_batches(-1), UsageError);
}

TEST(Stream, ContinuesWhereItWasInterrupted) {
  auto loader = data_loader(std::views::iota(0, 9), {.batch_size = 2, .num_workers = 1});
  LoaderState state;
  for (auto& batch : loader) {
    state = loader.state_dict();
    if (batch.info().index == 1) break;
  }
  EXPECT_EQ(state.position, 4);
  auto resumed = data_loader(std::views::iota(0, 9), {.batch_size = 2});
  resumed.load_state_dict(state);
  EXPECT_THAT(streamed_batches(resumed),
              ElementsAre(ElementsAre(4, 5), ElementsAre(6, 7), ElementsAre(8)));
  EXPECT_EQ(streamed_batches(resumed).size(), 5u);  // the next epoch is whole
}

TEST(BatchStream, OneProcessGetsTheBatchesAsTheyAre) {
  const std::vector<at::Tensor> batches{at::arange(3), at::arange(2)};
  auto loader = data_loader(batch_stream(batches));
  EXPECT_THAT(streamed_batches(loader), ElementsAre(ElementsAre(0, 1, 2), ElementsAre(0, 1)));
  EXPECT_EQ(loader.size(), 2);
  EXPECT_TRUE(loader.state_dict().counts_batches);
}

TEST(BatchStream, ListsOfExamplesAreStacked) {
  using Example = torch::data::Example<>;
  const std::vector<std::vector<Example>> batches{
      {Example(at::zeros(2), at::ones(1)), Example(at::ones(2), at::ones(1))}};
  for (auto& batch : data_loader(batch_stream(batches))) {
    EXPECT_EQ(batch.data.sizes(), (at::IntArrayRef{2, 2}));
    EXPECT_EQ(batch.target.sizes(), (at::IntArrayRef{2, 1}));
    EXPECT_EQ(batch.info().size, 2);
  }
}

TEST(BatchStream, AnErrorNamesTheBatch) {
  auto failing = batch_stream([](int64_t) {
    return [at = 0]() mutable -> std::optional<at::Tensor> {
      if (at++ == 1) throw std::runtime_error("gone");
      return at::zeros(2);
    };
  });
  try {
    streamed_batches(data_loader(failing));
    FAIL() << "no error";
  } catch (const DataError& error) {
    EXPECT_EQ(error.message(), "batch 1 could not be read: gone");
  }
}

TEST(BatchStream, ABatchWithoutRowsIsAnError) {
  EXPECT_THROW(
      streamed_batches(data_loader(batch_stream(std::vector<at::Tensor>{at::zeros({0, 2})}))),
      DataError);
}

}  // namespace
}  // namespace accelerate
