#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "accelerate/batch_shard.h"
#include "accelerate/errors.h"

namespace accelerate {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::vector<int64_t>> batches_of(const BatchShardOptions& options) {
  const BatchShard shard(options);
  std::vector<std::vector<int64_t>> batches;
  for (int64_t k = 0; k < shard.rounds(); ++k) {
    const BatchShard::Round round = shard.round(k);
    auto& batch = batches.emplace_back();
    for (int64_t slot = 0; slot < round.size; ++slot) {
      batch.push_back(shard.wrapped(round.first + slot));
    }
  }
  return batches;
}

TEST(BatchShard, EvenBatchesWrapRoundToTheFirstSamples) {
  EXPECT_THAT(batches_of({.n = 5, .batch_size = 2, .world_size = 2, .rank = 0}),
              ElementsAre(ElementsAre(0, 1), ElementsAre(4, 0)));
  EXPECT_THAT(batches_of({.n = 5, .batch_size = 2, .world_size = 2, .rank = 1}),
              ElementsAre(ElementsAre(2, 3), ElementsAre(1, 2)));
}

TEST(BatchShard, ValidCountsTheSlotsBeforeTheWrap) {
  const BatchShard first({.n = 5, .batch_size = 2, .world_size = 2, .rank = 0});
  const BatchShard second({.n = 5, .batch_size = 2, .world_size = 2, .rank = 1});
  EXPECT_EQ(first.round(0).valid, 2);
  EXPECT_EQ(first.round(1).valid, 1);
  EXPECT_EQ(second.round(0).valid, 2);
  EXPECT_EQ(second.round(1).valid, 0);
}

TEST(BatchShard, ADatasetSmallerThanABatchRepeatsSeveralTimesAndCountsEachSampleOnce) {
  const BatchShardOptions options{.n = 2, .batch_size = 5, .world_size = 2, .rank = 0};
  EXPECT_THAT(batches_of(options), ElementsAre(ElementsAre(0, 1, 0, 1, 0)));
  EXPECT_EQ(BatchShard(options).round(0).valid, 2);
  EXPECT_EQ(BatchShard({.n = 2, .batch_size = 5, .world_size = 2, .rank = 1}).round(0).valid, 0);
}

TEST(BatchShard, WithoutEvenBatchesTheTailIsRaggedAndRanksMayHaveFewerRounds) {
  EXPECT_THAT(
      batches_of({.n = 5, .batch_size = 2, .even_batches = false, .world_size = 2, .rank = 0}),
      ElementsAre(ElementsAre(0, 1), ElementsAre(4)));
  EXPECT_THAT(
      batches_of({.n = 5, .batch_size = 2, .even_batches = false, .world_size = 2, .rank = 1}),
      ElementsAre(ElementsAre(2, 3)));
  EXPECT_EQ(BatchShard({.n = 1, .batch_size = 2, .even_batches = false, .world_size = 2, .rank = 1})
                .rounds(),
            0);
}

TEST(BatchShard, DropLastKeepsOnlyRoundsThatAreCompleteOnEveryRank) {
  EXPECT_THAT(batches_of({.n = 7, .batch_size = 2, .drop_last = true, .world_size = 2, .rank = 1}),
              ElementsAre(ElementsAre(2, 3)));
}

TEST(BatchShard, SplitBatchesCutsEachBatchIntoOnePartARank) {
  EXPECT_THAT(
      batches_of({.n = 6, .batch_size = 4, .split_batches = true, .world_size = 2, .rank = 1}),
      ElementsAre(ElementsAre(2, 3), ElementsAre(0, 1)));
}

TEST(BatchShard, AnEmptyDatasetHasNoRounds) {
  EXPECT_EQ(BatchShard({.n = 0, .batch_size = 3, .world_size = 2}).rounds(), 0);
}

TEST(BatchShard, APositionThatNoPassHasIsRefused) {
  try {
    BatchShard({.n = 0}).wrapped(3);
    FAIL() << "no error";
  } catch (const UsageError& error) {
    EXPECT_EQ(error.message(), "a pass of 0 samples has no position 3");
  }
  EXPECT_THROW(BatchShard({.n = 2}).wrapped(-1), UsageError);
}

TEST(BatchShard, RefusesABatchThatTheRanksCannotShare) {
  try {
    BatchShard({.n = 8, .batch_size = 3, .split_batches = true, .world_size = 2});
    FAIL() << "no error";
  } catch (const UsageError& error) {
    EXPECT_EQ(error.message(),
              "split_batches needs a batch_size that the number of processes divides: 3 among 2");
    EXPECT_THAT(error.hint(), HasSubstr("multiple of the number of processes"));
  }
}

TEST(BatchShard, RefusesValuesOutOfRange) {
  EXPECT_THROW(BatchShard({.n = 1, .batch_size = 0}), UsageError);
  EXPECT_THROW(BatchShard({.n = 1, .batch_size = -1}), UsageError);
  EXPECT_THROW(BatchShard({.n = -1}), UsageError);
  EXPECT_THROW(BatchShard({.n = 1, .world_size = 0}), UsageError);
  EXPECT_THROW(BatchShard({.n = 1, .world_size = 2, .rank = 2}), UsageError);
  EXPECT_THROW(BatchShard({.n = 1, .world_size = 2, .rank = -1}), UsageError);
  EXPECT_THROW(
      BatchShard({.n = 1, .batch_size = std::numeric_limits<int64_t>::max() / 2, .world_size = 8}),
      UsageError);
}

}  // namespace
}  // namespace accelerate
