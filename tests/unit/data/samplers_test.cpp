#include "accelerate/samplers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <vector>

#include "accelerate/data_loader.h"
#include "accelerate/dataset.h"
#include "accelerate/errors.h"

namespace accelerate {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<int64_t> whole(const Sampler& sampler, int64_t n, uint64_t seed, int64_t epoch) {
  const auto order = sampler.order(n, seed, epoch);
  std::vector<int64_t> indices(static_cast<size_t>(order->size()));
  order->read(0, indices);
  return indices;
}

std::vector<int64_t> numbers_below(int64_t n) {
  std::vector<int64_t> numbers(static_cast<size_t>(n));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

std::vector<int64_t> sorted(std::vector<int64_t> values) {
  std::ranges::sort(values);
  return values;
}

std::vector<std::vector<int64_t>> pass_of(LoaderOptions options, int64_t n) {
  std::vector<std::vector<int64_t>> batches;
  for (auto& batch : data_loader(TensorDataset(at::arange(n), at::arange(n)), std::move(options))) {
    const at::Tensor data = batch.data.contiguous();
    batches.emplace_back(data.data_ptr<int64_t>(), data.data_ptr<int64_t>() + data.numel());
  }
  return batches;
}

class EverySampler : public testing::TestWithParam<std::shared_ptr<const Sampler>> {};
INSTANTIATE_TEST_SUITE_P(Samplers, EverySampler,
                         testing::Values(sequential_sampler(), random_sampler(),
                                         permutation_sampler()));

TEST_P(EverySampler, VisitsEverySampleOnce) {
  for (int64_t n = 0; n < 300; ++n) {
    ASSERT_EQ(sorted(whole(*GetParam(), n, 7, 3)), numbers_below(n)) << n;
  }
  for (const int64_t n : {511, 512, 513, 1000, 1023, 1024, 1025, 65537, 100'000}) {
    ASSERT_EQ(sorted(whole(*GetParam(), n, 7, 3)), numbers_below(n)) << n;
  }
}

TEST_P(EverySampler, AnyPositionIsReadByItself) {
  const auto order = GetParam()->order(1000, 5, 2);
  const std::vector<int64_t> all = whole(*GetParam(), 1000, 5, 2);
  for (const int64_t first : {0, 1, 500, 990}) {
    std::vector<int64_t> some(10);
    order->read(first, some);
    EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin() + first)) << first;
  }
}

TEST_P(EverySampler, SameArgumentsGiveTheSameOrder) {
  EXPECT_EQ(whole(*GetParam(), 100, 5, 2), whole(*GetParam(), 100, 5, 2));
}

TEST(PermutationSampler, SeedsAndEpochsGiveOtherOrders) {
  const auto sampler = permutation_sampler();
  std::set<std::vector<int64_t>> orders;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    for (int64_t epoch = 0; epoch < 20; ++epoch) orders.insert(whole(*sampler, 50, seed, epoch));
  }
  EXPECT_EQ(orders.size(), 400u);
}

// Counts how often sample s comes at position p. Under a uniform choice the sum of squares has a
// chi-square distribution with (n - 1)^2 degrees of freedom.
void expect_uniform(int64_t samples, int orders) {
  std::vector<int64_t> count(static_cast<size_t>(samples * samples), 0);
  for (int order = 0; order < orders; ++order) {
    const auto indices = whole(*permutation_sampler(), samples, 1, order);
    for (int64_t position = 0; position < samples; ++position) {
      ++count[static_cast<size_t>(position * samples + indices[static_cast<size_t>(position)])];
    }
  }
  const double expected = static_cast<double>(orders) / static_cast<double>(samples);
  double chi = 0;
  for (const int64_t seen : count) {
    chi += std::pow(static_cast<double>(seen) - expected, 2) / expected;
  }
  const double freedom = std::pow(static_cast<double>(samples - 1), 2);
  EXPECT_NEAR(chi, freedom, 6 * std::sqrt(2 * freedom)) << samples;
}

TEST(PermutationSampler, PutsEverySampleEverywhereEquallyOften) {
  expect_uniform(12, 24'000);  // from a table
  expect_uniform(300, 20'000);
  expect_uniform(513, 20'000);  // the narrowest network
  expect_uniform(600, 20'000);
}

TEST(PermutationSampler, AllOrdersOfFourSamplesComeEquallyOften) {
  constexpr int kOrders = 24000;
  std::map<std::vector<int64_t>, int> count;
  for (int order = 0; order < kOrders; ++order) ++count[whole(*permutation_sampler(), 4, 2, order)];
  ASSERT_EQ(count.size(), 24u);
  double chi = 0;
  for (const auto& [order, seen] : count) chi += std::pow(seen - 1000.0, 2) / 1000.0;
  EXPECT_LT(chi, 23 + 6 * std::sqrt(2 * 23.0));
}

TEST(PermutationSampler, NeighboursAreTornApart) {
  const auto indices = whole(*permutation_sampler(), 100'000, 3, 0);
  int64_t near = 0;
  for (size_t i = 1; i < indices.size(); ++i) near += std::abs(indices[i] - indices[i - 1]) < 100;
  // 200 of 100,000 neighbours are expected within 100 places.
  EXPECT_LT(near, 300);
  EXPECT_GT(near, 100);
}

TEST(WeightedSampler, DrawsInProportionToTheWeights) {
  const auto sampler = weighted_sampler({1, 0, 3}, 4000);
  const auto indices = whole(*sampler, 3, 1, 0);
  EXPECT_EQ(indices.size(), 4000u);
  EXPECT_EQ(std::ranges::count(indices, 1), 0);
  EXPECT_NEAR(static_cast<double>(std::ranges::count(indices, 2)), 3000, 150);
  EXPECT_NE(indices, whole(*sampler, 3, 1, 1));
}

TEST(WeightedSampler, WithoutReplacementNothingComesTwice) {
  EXPECT_EQ(sorted(whole(*weighted_sampler({1, 2, 3, 4}, 4, false), 4, 1, 0)), numbers_below(4));
}

TEST(WeightedSampler, RefusesWhatCannotBeDrawn) {
  EXPECT_THROW((void)weighted_sampler({1, -1}, 1), UsageError);
  EXPECT_THROW((void)weighted_sampler({1, std::nan("")}, 1), UsageError);
  EXPECT_THROW((void)weighted_sampler({0, 0}, 1), UsageError);
  EXPECT_THROW((void)weighted_sampler({}, 1), UsageError);
  EXPECT_THROW((void)weighted_sampler({1, 1}, -1), UsageError);
  EXPECT_THROW((void)weighted_sampler({1, 0, 1}, 3, false), UsageError);
}

TEST(SamplerOfTheUser, GivesTheOrderAndTheLengthOfAPass) {
  EXPECT_THAT(pass_of({.batch_size = 2, .sampler = sampler_of({4, 0, 4})}, 5),
              ElementsAre(ElementsAre(4, 0), ElementsAre(4)));
  const auto by_epoch = sampler_of(2, [](uint64_t seed, int64_t epoch) {
    return std::vector<int64_t>{static_cast<int64_t>(seed), epoch};
  });
  auto loader = data_loader(TensorDataset(at::arange(9), at::arange(9)),
                            {.batch_size = 2, .seed = 8, .sampler = by_epoch});
  EXPECT_EQ(loader.size(), 1);
  loader.set_epoch(5);
  EXPECT_TRUE(at::equal(loader.begin()->data, at::tensor({8, 5}, at::kLong)));
}

TEST(SamplerOfTheUser, IndicesThatTheDatasetDoesNotHaveAreNamed) {
  for (const int64_t wrong : {5, -1}) {
    try {
      pass_of({.batch_size = 2, .sampler = sampler_of({0, wrong})}, 5);
      FAIL() << "no error for " << wrong;
    } catch (const DataError& error) {
      EXPECT_EQ(error.message(), "the sampler gave the index " + std::to_string(wrong) +
                                     ", the dataset has 5 samples");
    }
  }
}

TEST(SamplerOfTheUser, AFunctionThatBreaksItsWordIsAnError) {
  const auto sampler = sampler_of(3, [](uint64_t, int64_t) { return std::vector<int64_t>{0}; });
  EXPECT_THROW(pass_of({.batch_size = 2, .sampler = sampler}, 5), DataError);
  EXPECT_THROW((void)sampler_of(1, nullptr), UsageError);
  EXPECT_THROW((void)batches_by(nullptr), UsageError);
}

TEST(BatchSamplerOfTheUser, BatchesMayVaryInSize) {
  EXPECT_THAT(pass_of({.batch_sampler = batches_of({{0, 1, 2}, {3}, {4, 0}})}, 5),
              ElementsAre(ElementsAre(0, 1, 2), ElementsAre(3), ElementsAre(4, 0)));
}

TEST(BatchSamplerOfTheUser, BatchesOfOneSizeAreDealtAsSamples) {
  auto loader = data_loader(TensorDataset(at::arange(6), at::arange(6)),
                            {.batch_sampler = batches_of({{5, 4}, {3, 2}, {1}}, 2)});
  std::vector<at::Tensor> second;
  for (auto& batch : loader.sharded({.rank = 1, .world_size = 2})) second.push_back(batch.data);
  ASSERT_EQ(second.size(), 2u);
  EXPECT_TRUE(at::equal(second[0], at::tensor({3, 2}, at::kLong)));
  EXPECT_TRUE(at::equal(second[1], at::tensor({4, 3}, at::kLong)));  // wrapped round to position 1
}

TEST(BatchSamplerOfTheUser, MixedSizesThatWereNotAnnouncedAreAnError) {
  for (const auto& batches :
       std::vector<std::vector<std::vector<int64_t>>>{{{0, 1}, {2}, {3, 4}}, {{0, 1}, {2, 3, 4}}}) {
    try {
      pass_of({.batch_sampler = batches_of(batches, 2)}, 5);
      FAIL() << "no error";
    } catch (const DataError& error) {
      EXPECT_THAT(error.what(), HasSubstr("it promised batches of 2"));
    }
  }
  EXPECT_THROW(pass_of({.batch_sampler = batches_of({{0}, {}})}, 5), DataError);
}

TEST(LoaderOptions, OrdersThatContradictEachOtherAreRefused) {
  EXPECT_THROW(pass_of({.shuffle = true, .sampler = sequential_sampler()}, 5), UsageError);
  EXPECT_THROW(pass_of({.shuffle = true, .batch_sampler = batches_of({{0}})}, 5), UsageError);
  EXPECT_THROW(pass_of({.sampler = sequential_sampler(), .batch_sampler = batches_of({{0}})}, 5),
               UsageError);
  EXPECT_THROW(data_loader(stream(std::vector<int>{1}), {.shuffle = true}), UsageError);
}

}  // namespace
}  // namespace accelerate
