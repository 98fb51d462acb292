#include "accelerate/dataset_ops.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gmock/gmock.h>
#include <torch/data.h>

#include <numeric>
#include <string>
#include <vector>

#include "accelerate/dataset.h"
#include "unit/data/dataset_files.h"

namespace accelerate {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<int64_t> counted_numbers(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.to(at::kLong).contiguous();
  return {flat.data_ptr<int64_t>(), flat.data_ptr<int64_t>() + flat.numel()};
}

// Sample i is the number first + i; no get_batch().
struct Numbers {
  int first = 0;
  size_t count = 0;
  size_t size() const { return count; }
  int get(size_t index) const { return first + static_cast<int>(index); }
};

// As Numbers, with batches of samples.
struct BatchedNumbers : Numbers {
  std::vector<int> get_batch(c10::ArrayRef<size_t> indices) const {
    std::vector<int> batch;
    for (const size_t index : indices) batch.push_back(get(index));
    return batch;
  }
};

// Draws at random: sample i is i plus a number of the generator times 100.
struct Drawn {
  size_t size() const { return 4; }
  int64_t get(size_t index, at::Generator& generator) const {
    return static_cast<int64_t>(index) + 100 * at::randint(1, 10, {}, generator).item<int64_t>();
  }
};

struct TorchNumbers : torch::data::datasets::Dataset<TorchNumbers> {
  explicit TorchNumbers(int64_t first, std::optional<size_t> count) : first(first), count(count) {}
  torch::data::Example<> get(size_t index) override {
    const auto value = first + static_cast<int64_t>(index);
    return {at::full({2}, value), at::scalar_tensor(value, at::kLong)};
  }
  std::optional<size_t> size() const override { return count; }
  int64_t first;
  std::optional<size_t> count;
};

template <class Dataset>
concept HasGet = requires(const Dataset& dataset) {
  dataset.get(size_t{0});
};
template <class Dataset>
concept HasSeededGet = requires(const Dataset& dataset, at::Generator& generator) {
  dataset.get(size_t{0}, generator);
};
template <class Dataset>
concept HasBatch = requires(const Dataset& dataset) {
  dataset.get_batch(c10::ArrayRef<size_t>());
};

template <class Dataset>
auto all_of(const Dataset& dataset) {
  std::vector<decltype(dataset.get(0))> samples;
  for (size_t i = 0; i < dataset.size(); ++i) samples.push_back(dataset.get(i));
  return samples;
}

const std::vector<size_t> kMixed{4, 0, 3, 1};

TEST(Subset, SamplesAreThoseAtTheIndices) {
  const auto dataset = subset(Numbers{10, 5}, {4, 0, 4});
  EXPECT_EQ(dataset.size(), 3U);
  EXPECT_THAT(all_of(dataset), ElementsAre(14, 10, 14));
  EXPECT_THAT(dataset.indices(), ElementsAre(4, 0, 4));
  static_assert(!HasBatch<decltype(dataset)> && !HasSeededGet<decltype(dataset)>);
}

TEST(Subset, ForwardsWholeBatches) {
  const auto dataset = subset(TensorDataset(at::arange(5), at::arange(5) * 2), {4, 3, 0});
  const std::vector<size_t> indices{2, 0};
  const Sample batch = dataset.get_batch(indices);
  EXPECT_THAT(counted_numbers(batch.data), ElementsAre(0, 4));
  EXPECT_THAT(counted_numbers(batch.target), ElementsAre(0, 8));
}

TEST(Subset, RefusesIndicesThatTheDatasetDoesNotHave) {
  EXPECT_EQ(error_of<UsageError>([] {
              subset(Numbers{0, 3}, {0, 3});
            }).message(),
            "sample 3 was asked of a dataset of 3");
  const auto dataset = subset(Numbers{0, 3}, {1});
  EXPECT_EQ(error_of<UsageError>([&] { dataset.get(1); }).message(),
            "sample 1 was asked of a dataset of 1");
}

TEST(Concat, DatasetsFollowOneAnotherAndEmptyOnesAreSkipped) {
  const auto dataset = concat(Numbers{0, 2}, Numbers{50, 0}, Numbers{100, 3});
  EXPECT_EQ(dataset.size(), 5U);
  EXPECT_THAT(all_of(dataset), ElementsAre(0, 1, 100, 101, 102));
  EXPECT_THAT(error_of<UsageError>([&] { dataset.get(5); }).message(),
              "sample 5 was asked of a dataset of 5");
}

TEST(Concat, DatasetsMayBeOfDifferentTypesWithOneTypeOfSample) {
  const auto dataset = concat(Numbers{0, 2}, BatchedNumbers{{10, 1}}, std::vector<int>{7, 8});
  EXPECT_THAT(all_of(dataset), ElementsAre(0, 1, 10, 7, 8));
  static_assert(!HasBatch<decltype(dataset)>);
}

TEST(Concat, TakesAVectorOfDatasetsOrOfPointers) {
  EXPECT_THAT(all_of(concat(std::vector<Numbers>{{0, 1}, {10, 2}})), ElementsAre(0, 10, 11));
  const auto shared = std::make_shared<Numbers>(Numbers{5, 1});
  EXPECT_THAT(all_of(concat(std::vector{shared, shared})), ElementsAre(5, 5));
  EXPECT_EQ(error_of<UsageError>([] { concat(std::vector<Numbers>{}); }).message(),
            "concat needs at least one dataset");
  EXPECT_EQ(error_of<UsageError>([] {
              concat(Numbers{0, 1}, std::shared_ptr<Numbers>());
            }).message(),
            "a dataset is needed, got a null pointer");
}

TEST(Concat, BatchesOfSamplesComeInTheOrderOfTheIndices) {
  const auto dataset = concat(BatchedNumbers{{0, 2}}, BatchedNumbers{{100, 3}});
  EXPECT_THAT(dataset.get_batch(kMixed), ElementsAre(102, 0, 101, 1));
  EXPECT_THAT(dataset.get_batch({}), IsEmpty());
}

TEST(Concat, WholeBatchesAreMergedInTheOrderOfTheIndices) {
  const TensorDataset low(at::arange(4).view({2, 2}), at::arange(2));
  const TensorDataset high(at::arange(100, 106).view({3, 2}), at::arange(50, 53));
  const auto dataset = concat(low, high);
  const Sample batch = dataset.get_batch(kMixed);
  EXPECT_THAT(counted_numbers(batch.data), ElementsAre(104, 105, 0, 1, 102, 103, 2, 3));
  EXPECT_THAT(counted_numbers(batch.target), ElementsAre(52, 0, 51, 1));

  const std::vector<size_t> sorted{0, 1, 2};
  EXPECT_THAT(counted_numbers(dataset.get_batch(sorted).target), ElementsAre(0, 1, 50));
  const std::vector<size_t> within_one{4, 2};
  EXPECT_THAT(counted_numbers(dataset.get_batch(within_one).target), ElementsAre(52, 50));
  EXPECT_EQ(dataset.get_batch({}).data.sizes(), (at::IntArrayRef{0, 2}));
}

TEST(Concat, WholeBatchesOfTuplesAndOfTensorsAreMergedToo) {
  const auto tuples = concat(tensor_dataset(at::arange(2), at::arange(2) * 2),
                             tensor_dataset(at::arange(10, 13), at::arange(10, 13) * 2));
  const auto [first, second] = tuples.get_batch(kMixed);
  EXPECT_THAT(counted_numbers(first), ElementsAre(12, 0, 11, 1));
  EXPECT_THAT(counted_numbers(second), ElementsAre(24, 0, 22, 2));
  const auto tensors =
      concat(UnlabelledTensorDataset(at::arange(2)), UnlabelledTensorDataset(at::arange(10, 13)));
  EXPECT_THAT(counted_numbers(tensors.get_batch(kMixed).data), ElementsAre(12, 0, 11, 1));
}

TEST(Concat, RefusesAPartThatReturnsTooFewSamples) {
  struct Lossy : Numbers {
    std::vector<int> get_batch(c10::ArrayRef<size_t>) const { return {1}; }
  };
  const auto dataset = concat(Lossy{{0, 2}}, Lossy{{0, 3}});
  const DataError error = error_of<DataError>([&] { dataset.get_batch(kMixed); });
  EXPECT_EQ(error.message(),
            "the datasets were asked for a batch of 4 samples and returned one of 2");
  EXPECT_EQ(error.where(), "get_batch() inside concat()");
}

TEST(Concat, HandsTheGeneratorToThePartsThatWantOne) {
  const std::vector<int64_t> fixed{7, 8};
  const auto dataset = concat(fixed, Drawn{});
  static_assert(!HasGet<decltype(dataset)> && HasSeededGet<decltype(dataset)> &&
                !HasBatch<decltype(dataset)>);
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(3);
  at::Generator twin = at::make_generator<at::CPUGeneratorImpl>(3);
  EXPECT_EQ(dataset.get(1, generator), 8);
  EXPECT_EQ(dataset.get(4, generator), Drawn{}.get(2, twin));
}

TEST(RandomSplit, EveryRuleOfTorchGivesTheSameParts) {
  // torch.utils.data.random_split(range(10), [0.35, 0.35, 0.3], Generator().manual_seed(42))
  const auto parts = random_split(Numbers{0, 10}, {0.35, 0.35, 0.3}, 42);
  ASSERT_EQ(parts.size(), 3U);
  EXPECT_THAT(all_of(parts[0]), ElementsAre(2, 6, 1, 8));
  EXPECT_THAT(all_of(parts[1]), ElementsAre(4, 5, 0));
  EXPECT_THAT(all_of(parts[2]), ElementsAre(9, 3, 7));
}

TEST(RandomSplit, WhatFractionsLeaveIsDealtInTurn) {
  const auto sizes = [](size_t count, const std::vector<SplitPart>& split) {
    std::vector<size_t> sizes;
    for (const auto& part : random_split(Numbers{0, count}, split, 0)) sizes.push_back(part.size());
    return sizes;
  };
  EXPECT_THAT(sizes(5, {0.25, 0.25, 0.25, 0.25}), ElementsAre(2, 1, 1, 1));
  EXPECT_THAT(sizes(11, {0.9, 0.1}), ElementsAre(10, 1));
  EXPECT_THAT(sizes(0, {0.5, 0.5}), ElementsAre(0, 0));
  EXPECT_THAT(sizes(3, {0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1}),
              ElementsAre(1, 1, 1, 0, 0, 0, 0, 0, 0, 0));
  EXPECT_THAT(sizes(7, {1.0}), ElementsAre(7));
}

TEST(RandomSplit, CountsCoverEverySampleOnce) {
  const int64_t first = 6;
  const auto parts = random_split(Numbers{0, 10}, {first, 10 - first}, 7);
  std::vector<int> seen = all_of(parts[0]);
  EXPECT_EQ(seen.size(), 6U);
  for (const int sample : all_of(parts[1])) seen.push_back(sample);
  EXPECT_THAT(seen, testing::UnorderedElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
  EXPECT_NE(all_of(random_split(Numbers{0, 10}, {6, 4}, 8)[0]), all_of(parts[0]));
}

TEST(RandomSplit, RefusesPartsThatDoNotFit) {
  const auto message = [](const std::vector<SplitPart>& split) {
    return error_of<UsageError>([&] { random_split(Numbers{0, 10}, split, 0); }).message();
  };
  EXPECT_EQ(message({6, 5}), "random_split: the parts add up to 11 samples, the dataset has 10");
  EXPECT_EQ(message({0.5, 0.4}), "random_split: the fractions add up to 0.900000, not to 1");
  EXPECT_EQ(message({1.5, -0.5}), "random_split: the fraction 1.500000 is not between 0 and 1");
  EXPECT_EQ(message({-1, 11}), "random_split: a part cannot have a negative number of samples");
  EXPECT_EQ(message({5, 0.5}), "random_split: numbers of samples and fractions are mixed");
  EXPECT_EQ(message({}), "random_split needs at least one part");
}

TEST(Map, AppliesTheFunctionToEachSample) {
  const auto dataset = map(Numbers{1, 3}, [](int number) { return std::to_string(number) + "!"; });
  EXPECT_EQ(dataset.size(), 3U);
  EXPECT_THAT(all_of(dataset), ElementsAre("1!", "2!", "3!"));
}

TEST(Map, WorksOnBatchesOfSamplesButNotOnWholeOnes) {
  const auto twice = [](auto value) { return value * 2; };
  const auto samples = map(BatchedNumbers{{1, 3}}, twice);
  const std::vector<size_t> indices{2, 0};
  EXPECT_THAT(samples.get_batch(indices), ElementsAre(6, 2));

  const auto whole = map(UnlabelledTensorDataset(at::arange(3)), twice);
  static_assert(HasGet<decltype(whole)> && !HasBatch<decltype(whole)>);
  EXPECT_EQ(whole.get(2).item<int64_t>(), 4);
}

TEST(Map, AFunctionThatDrawsGetsTheGenerator) {
  const auto dataset = map(BatchedNumbers{{10, 3}}, [](int number, at::Generator& generator) {
    return number + 100 * at::randint(1, 10, {}, generator).item<int64_t>();
  });
  static_assert(!HasGet<decltype(dataset)> && HasSeededGet<decltype(dataset)> &&
                !HasBatch<decltype(dataset)>);
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(5);
  at::Generator twin = at::make_generator<at::CPUGeneratorImpl>(5);
  EXPECT_EQ(dataset.get(1, generator), 11 + 100 * at::randint(1, 10, {}, twin).item<int64_t>());
}

TEST(Map, AFunctionWithoutGeneratorKeepsTheInnerDrawing) {
  const auto dataset = map(subset(Drawn{}, {3, 1}), [](int64_t number) { return -number; });
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(5);
  at::Generator twin = at::make_generator<at::CPUGeneratorImpl>(5);
  EXPECT_EQ(dataset.get(0, generator), -Drawn{}.get(3, twin));
}

TEST(MapBatches, AppliesTheFunctionToTheWholeBatch) {
  const auto dataset = map_batches(TensorDataset(at::arange(4), at::arange(4)), [](Sample batch) {
    batch.data = batch.data * 10;
    return batch;
  });
  static_assert(!HasGet<decltype(dataset)>);
  EXPECT_EQ(dataset.size(), 4U);
  const std::vector<size_t> indices{3, 1};
  EXPECT_THAT(counted_numbers(dataset.get_batch(indices).data), ElementsAre(30, 10));
  EXPECT_THAT(counted_numbers(dataset.get_batch(indices).target), ElementsAre(3, 1));
}

TEST(MapBatches, OfADatasetWithoutBatchesTheFunctionGetsTheSamples) {
  const auto dataset = map_batches(Numbers{0, 4}, [](const std::vector<int>& samples) {
    return std::accumulate(samples.begin(), samples.end(), 0);
  });
  const std::vector<size_t> indices{3, 1, 2};
  EXPECT_EQ(dataset.get_batch(indices), 6);
}

TEST(Filter, KeepsTheSamplesThatPassInTheirOrder) {
  const auto dataset = filter(BatchedNumbers{{0, 7}}, [](int number) { return number % 3 == 0; });
  EXPECT_THAT(all_of(dataset), ElementsAre(0, 3, 6));
  const std::vector<size_t> indices{2, 1};
  EXPECT_THAT(dataset.get_batch(indices), ElementsAre(6, 3));
  EXPECT_EQ(filter(Numbers{0, 3}, [](int) { return false; }).size(), 0U);
}

TEST(Filter, AsksThePredicateOnceForEachSample) {
  int asked = 0;
  const auto dataset = filter(Numbers{0, 5}, [&](int) { return ++asked > 0; });
  all_of(dataset);
  EXPECT_EQ(asked, 5);
}

TEST(Filter, KeepsADatasetThatDraws) {
  const auto dataset = filter(Drawn{}, [](int64_t number) { return number % 100 >= 2; });
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(1);
  ASSERT_EQ(dataset.size(), 2U);
  EXPECT_EQ(dataset.get(0, generator) % 100, 2);
}

TEST(TorchDatasets, GoThroughAllCombinators) {
  const auto joined = concat(TorchNumbers(0, 3), TorchNumbers(10, 3));
  const auto even = filter(joined, [](const torch::data::Example<>& example) {
    return example.target.item<int64_t>() % 2 == 0;
  });
  const auto negative = accelerate::map(even, [](torch::data::Example<> example) {
    example.target = -example.target;
    return example;
  });
  ASSERT_EQ(negative.size(), 4U);
  EXPECT_EQ(negative.get(3).target.item<int64_t>(), -12);
  const std::vector<size_t> indices{3, 0};
  const std::vector<torch::data::Example<>> batch = negative.get_batch(indices);
  EXPECT_EQ(batch[0].target.item<int64_t>(), -12);
  EXPECT_EQ(batch[1].target.item<int64_t>(), 0);
  EXPECT_EQ(random_split(std::make_shared<TorchNumbers>(0, 4), {0.5, 0.5}, 1)[1].size(), 2U);
}

TEST(TorchDatasets, WithStackTransformHaveBatchesAlone) {
  auto stacked = TorchNumbers(5, 4).map(torch::data::transforms::Stack<>());
  const auto dataset = subset(concat(stacked, stacked), {7, 0});
  const std::vector<size_t> indices{0, 1};
  EXPECT_THAT(counted_numbers(dataset.get_batch(indices).target), ElementsAre(8, 5));
}

TEST(TorchDatasets, WithoutASizeAreRefused) {
  EXPECT_EQ(error_of<UsageError>([] { subset(TorchNumbers(0, std::nullopt), {0}); }).message(),
            "the dataset does not know its size");
}

}  // namespace
}  // namespace accelerate
