#include "accelerate/data_loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <ranges>
#include <stdexcept>
#include <string>
#include <vector>

#include "accelerate/dataset.h"
#include "accelerate/errors.h"

namespace accelerate {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::IsEmpty;

// Sample i is i, its target 10 i.
TensorDataset integers_below(int64_t n) { return TensorDataset(at::arange(n), at::arange(n) * 10); }

std::vector<int64_t> values(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.to(at::kLong).contiguous().view(-1);
  return {flat.data_ptr<int64_t>(), flat.data_ptr<int64_t>() + flat.numel()};
}

template <class Loader>
std::vector<std::vector<int64_t>> loaded_batches(const Loader& loader) {
  std::vector<std::vector<int64_t>> batches;
  for (auto& batch : loader) batches.push_back(values(batch.data));
  return batches;
}

class LabelledDataset : public torch::data::datasets::Dataset<LabelledDataset> {
 public:
  torch::data::Example<> get(size_t index) override {
    return {torch::full({2}, static_cast<int64_t>(index)), torch::tensor(int64_t(index) * 10)};
  }
  std::optional<size_t> size() const override { return 5; }
};

// Tensors without a target, an integer for a size and no get_batch.
struct PlainTensors {
  int size() const { return 3; }
  at::Tensor get(size_t index) const { return at::full({1}, static_cast<int64_t>(index)); }
};

static_assert(std::ranges::input_range<DataLoader<TensorDataset>>);
static_assert(std::ranges::sized_range<DataLoader<TensorDataset>>);

TEST(DataLoader, YieldsTheDatasetInOrderWithAShortLastBatch) {
  auto loader = data_loader(integers_below(5), {.batch_size = 2});
  EXPECT_EQ(loader.size(), 3);
  EXPECT_THAT(loaded_batches(loader),
              ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3), ElementsAre(4)));
}

TEST(DataLoader, DropLastLeavesOutTheShortBatch) {
  auto loader = data_loader(integers_below(5), {.batch_size = 2, .drop_last = true});
  EXPECT_EQ(loader.size(), 2);
  EXPECT_THAT(loaded_batches(loader), ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3)));
}

TEST(DataLoader, AnEmptyDatasetYieldsNothing) {
  auto loader = data_loader(integers_below(0), {.batch_size = 2});
  EXPECT_EQ(loader.size(), 0);
  EXPECT_THAT(loaded_batches(loader), IsEmpty());
  EXPECT_EQ(loader.epoch(), 1);
}

TEST(DataLoader, StacksTheExamplesOfATorchDataset) {
  auto loader = data_loader(LabelledDataset(), {.batch_size = 3});
  auto batch = loader.begin();
  EXPECT_TRUE(at::equal(batch->data, at::tensor({0, 0, 1, 1, 2, 2}, at::kLong).view({3, 2})));
  EXPECT_THAT(values(batch->target), ElementsAre(0, 10, 20));
}

TEST(DataLoader, TakesTheWholeBatchOfADatasetMappedWithStack) {
  auto loader =
      data_loader(LabelledDataset().map(torch::data::transforms::Stack<>()), {.batch_size = 4});
  auto batch = loader.begin();
  EXPECT_EQ(batch->data.sizes(), (at::IntArrayRef{4, 2}));
  EXPECT_THAT(values(batch->target), ElementsAre(0, 10, 20, 30));
}

TEST(DataLoader, TakesExamplesWithoutTargetAndPlainTensors) {
  auto unlabelled =
      data_loader(torch::data::datasets::TensorDataset(at::arange(3)), {.batch_size = 2});
  EXPECT_THAT(loaded_batches(unlabelled), ElementsAre(ElementsAre(0, 1), ElementsAre(2)));
  auto plain = data_loader(PlainTensors(), {.batch_size = 2});
  EXPECT_THAT(loaded_batches(plain), ElementsAre(ElementsAre(0, 1), ElementsAre(2)));
}

TEST(DataLoader, ABatchKnowsWhereItStands) {
  auto loader = data_loader(integers_below(5), {.batch_size = 2});
  loader.set_epoch(7);
  std::vector<BatchInfo> infos;
  for (auto& batch : loader) infos.push_back(batch.info());
  ASSERT_EQ(infos.size(), 3u);
  for (int64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(infos[i].epoch, 7);
    EXPECT_EQ(infos[i].index, i);
    EXPECT_EQ(infos[i].is_last, i == 2);
    EXPECT_EQ(infos[i].size, i == 2 ? 1 : 2);
    EXPECT_EQ(infos[i].valid, infos[i].size);
  }
}

TEST(DataLoader, AKeptBatchOutlivesTheStepToTheNext) {
  auto loader = data_loader(integers_below(4), {.batch_size = 2});
  auto it = loader.begin();
  Batch<Sample> kept = *it;
  ++it;
  EXPECT_THAT(values(kept.data), ElementsAre(0, 1));
  EXPECT_EQ(kept.info().index, 0);
}

TEST(DataLoader, ShufflesByRandpermOfSeedPlusEpoch) {
  // torch.randperm(10) of generators seeded with 42, 43 and 44.
  const std::vector<std::vector<int64_t>> expected{{2, 6, 1, 8, 4, 5, 0, 9, 3, 7},
                                                   {8, 4, 9, 0, 5, 1, 6, 7, 2, 3},
                                                   {2, 6, 3, 8, 7, 9, 1, 4, 5, 0}};
  auto loader = data_loader(integers_below(10), {.batch_size = 10, .shuffle = true, .seed = 42});
  for (const auto& order : expected) EXPECT_THAT(loaded_batches(loader), ElementsAre(order));
  loader.set_epoch(1);
  EXPECT_THAT(loaded_batches(loader), ElementsAre(expected[1]));
}

TEST(DataLoader, ShufflesByTheSeedOfTorchWhereNoneIsGiven) {
  torch::manual_seed(42);
  auto loader = data_loader(integers_below(10), {.batch_size = 10, .shuffle = true});
  EXPECT_THAT(loaded_batches(loader), ElementsAre(ElementsAre(2, 6, 1, 8, 4, 5, 0, 9, 3, 7)));
}

TEST(DataLoader, TheEpochGoesUpAfterAFullPassAndNotAfterABreak) {
  auto loader = data_loader(integers_below(4), {.batch_size = 2});
  EXPECT_EQ(loader.epoch(), 0);
  loaded_batches(loader);
  EXPECT_EQ(loader.epoch(), 1);
  for (auto& batch : loader) {
    EXPECT_EQ(batch.info().epoch, 1);
    break;
  }
  EXPECT_EQ(loader.epoch(), 1);
  auto handle = loader;
  loaded_batches(handle);
  EXPECT_EQ(loader.epoch(), 2) << "copies are handles of one loader";
}

TEST(DataLoader, NestedLoopsOverOneLoaderDoNotDisturbEachOther) {
  auto loader = data_loader(integers_below(4), {.batch_size = 2});
  std::vector<std::vector<int64_t>> outer;
  for (auto& batch : loader) {
    EXPECT_THAT(loaded_batches(loader), ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3)));
    outer.push_back(values(batch.data));
  }
  EXPECT_THAT(outer, ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3)));
}

TEST(DataLoader, AnIteratorOutlivesItsLoader) {
  auto it = [] {
    auto loader = data_loader(integers_below(4), {.batch_size = 2});
    return loader.begin();
  }();
  ++it;
  EXPECT_THAT(values(it->data), ElementsAre(2, 3));
}

TEST(DataLoader, AnErrorOfTheDatasetLeavesTheLoaderUsable) {
  struct Failing {
    size_t size() const { return 3; }
    at::Tensor get(size_t index) const {
      if (*fails && index == 1) throw std::runtime_error("disk gone");
      return at::scalar_tensor(static_cast<int64_t>(index), at::kLong);
    }
    std::shared_ptr<bool> fails = std::make_shared<bool>(true);
  };
  auto loader = data_loader(Failing(), {.batch_size = 1});
  EXPECT_THROW(loaded_batches(loader), std::runtime_error);
  EXPECT_EQ(loader.epoch(), 0);
  *loader.dataset().fails = false;
  EXPECT_THAT(loaded_batches(loader), ElementsAre(ElementsAre(0), ElementsAre(1), ElementsAre(2)));
}

TEST(DataLoader, SkippingCountsFromTheBeginningOfTheEpochAlsoAfterAResume) {
  auto loader = data_loader(integers_below(10), {.batch_size = 2});
  LoaderState state = loader.state_dict();
  state.position = 4;
  loader.load_state_dict(state);
  EXPECT_EQ(loader.size(), 3);
  EXPECT_EQ(loader.skip_first_batches(1).size(), 3);
  EXPECT_EQ(loader.skip_first_batches(2).size(), 3);
  EXPECT_EQ(loader.skip_first_batches(3).size(), 2);
}

TEST(DataLoader, AnInnerLoopLeavesThePlaceOfTheOuterOneAlone) {
  auto loader = data_loader(integers_below(8), {.batch_size = 2});
  for (auto& batch : loader) {
    for (auto& inner : loader) EXPECT_EQ(inner.info().size, 2);
    EXPECT_EQ(loader.state_dict().epoch, 0);
    EXPECT_EQ(loader.state_dict().position, 2 * (batch.info().index + 1));
  }
}

TEST(DataLoader, AnEpochThatIsSetInsideALoopStays) {
  auto loader = data_loader(integers_below(4), {.batch_size = 2});
  for (auto& batch : loader) {
    if (batch.info().is_last) loader.set_epoch(5);
  }
  EXPECT_EQ(loader.epoch(), 5);
}

TEST(DataLoader, TheStateHoldsTheSeedThatThePassUses) {
  torch::manual_seed(1);
  auto loader = data_loader(integers_below(8), {.batch_size = 2, .shuffle = true});
  std::vector<int64_t> seen;
  auto it = loader.begin();
  for (const int64_t value : values(it->data)) seen.push_back(value);
  torch::manual_seed(2);
  auto resumed = data_loader(integers_below(8), {.batch_size = 2, .shuffle = true});
  resumed.load_state_dict(loader.state_dict());
  for (auto& batch : resumed) {
    for (const int64_t value : values(batch.data)) seen.push_back(value);
  }
  EXPECT_THAT(seen, testing::UnorderedElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
}

TEST(DataLoader, RefusesAPlaceThatAPassDoesNotHave) {
  auto loader = data_loader(integers_below(8), {.batch_size = 2});
  LoaderState state = loader.state_dict();
  state.position = 9;
  EXPECT_THROW(loader.load_state_dict(state), DataError);
  EXPECT_EQ(loader.size(), 4);
}

TEST(DataLoader, AListThatShrinksInsideALoopIsADataError) {
  auto list = std::make_shared<std::vector<std::string>>(8, "text");
  auto loader = data_loader(list, {.batch_size = 2});
  EXPECT_THROW(
      for (auto& batch
           : loader) {
        EXPECT_EQ(batch.size(), 2u);
        list->clear();
      },
      DataError);
}

TEST(DataLoader, RefusesABatchSizeBesideABatchSampler) {
  EXPECT_THROW(data_loader(integers_below(8),
                           {.batch_size = 3, .batch_sampler = accelerate::batches_of({{0}})}),
               UsageError);
}

TEST(DataLoader, SharesADatasetGivenBySharedPointer) {
  auto dataset = std::make_shared<PlainTensors>();
  auto loader = data_loader(dataset, {.batch_size = 2});
  EXPECT_EQ(&loader.dataset(), dataset.get());
}

TEST(DataLoader, RefusesABatchSizeBelowOne) {
  EXPECT_THROW(data_loader(integers_below(3), {.batch_size = 0}), UsageError);
  EXPECT_THROW(data_loader(integers_below(3), {.batch_size = -2}), UsageError);
}

TEST(DataLoader, RefusesADatasetThatDoesNotKnowItsSize) {
  struct Endless {
    std::optional<size_t> size() const { return std::nullopt; }
    at::Tensor get(size_t) const { return at::zeros({1}); }
  };
  auto loader = data_loader(Endless(), {.batch_size = 2});
  EXPECT_THROW(loader.begin(), UsageError);
}

TEST(DataLoader, RefusesSamplesOfDifferentShapes) {
  struct Growing {
    size_t size() const { return 3; }
    at::Tensor get(size_t index) const { return at::zeros({int64_t(index) + 1}); }
  };
  auto loader = data_loader(Growing(), {.batch_size = 2});
  try {
    loader.begin();
    FAIL() << "no error";
  } catch (const DataError& error) {
    EXPECT_EQ(error.message(), "samples 0 and 1 of a batch differ in shape: [1] and [2]");
  }
}

TEST(DataLoader, RefusesABatchOfAnotherSizeThanItAskedFor) {
  // Whole batches, of which one tensor has a row more than was asked for.
  struct TooMany {
    size_t size() const { return 4; }
    Sample get_batch(c10::ArrayRef<size_t> indices) const {
      const auto asked = static_cast<int64_t>(indices.size());
      return {.data = at::zeros({asked}), .target = at::zeros({asked + 1})};
    }
  };
  auto loader = data_loader(TooMany(), {.batch_size = 2});
  try {
    loader.begin();
    FAIL() << "no error";
  } catch (const DataError& error) {
    EXPECT_EQ(error.message(),
              "the dataset was asked for a batch of 2 samples and returned one of 3");
    EXPECT_THAT(error.where(), testing::MatchesRegex("get_batch\\(\\) of .*TooMany"));
  }

  struct TooFew {
    size_t size() const { return 4; }
    std::vector<at::Tensor> get_batch(c10::ArrayRef<size_t>) const { return {at::zeros({1})}; }
  };
  EXPECT_THROW(data_loader(TooFew(), {.batch_size = 2}).begin(), DataError);
  EXPECT_NO_THROW(data_loader(TooFew(), {.batch_size = 1}).begin());
}

TEST(DataLoader, RefusesABatchWithoutABatchDimension) {
  struct Scalars {
    size_t size() const { return 4; }
    at::Tensor get_batch(c10::ArrayRef<size_t>) const { return at::scalar_tensor(1); }
  };
  try {
    data_loader(Scalars(), {.batch_size = 1}).begin();
    FAIL() << "no error";
  } catch (const DataError& error) {
    EXPECT_EQ(error.message(),
              "the dataset was asked for a batch of 1 samples and returned a tensor without a "
              "batch dimension");
  }
}

TEST(DataLoader, TakesABatchThatLeavesItsTargetUndefined) {
  struct WithoutTarget {
    size_t size() const { return 2; }
    Sample get_batch(c10::ArrayRef<size_t> indices) const {
      return {.data = at::zeros({static_cast<int64_t>(indices.size())})};
    }
  };
  EXPECT_FALSE(data_loader(WithoutTarget(), {.batch_size = 2}).begin()->target.defined());
}

TEST(DataLoader, RefusesANullDataset) {
  try {
    data_loader(std::shared_ptr<TensorDataset>());
    FAIL() << "no error";
  } catch (const UsageError& error) {
    EXPECT_EQ(error.message(), "a loader needs a dataset, got a null pointer");
  }
}

TEST(ShardedLoader, EachRankYieldsItsShareOfTheSameShuffledOrder) {
  auto loader = data_loader(integers_below(10), {.batch_size = 2, .shuffle = true, .seed = 7});
  // torch.randperm(10) of seed 43 is 8 4 9 0 5 1 6 7 2 3.
  auto first = loader.sharded({.rank = 0, .world_size = 2, .seed = 43});
  auto second = loader.sharded({.rank = 1, .world_size = 2, .seed = 43});
  EXPECT_TRUE(first.is_sharded());
  EXPECT_EQ(first.size(), 3);
  EXPECT_THAT(loaded_batches(first),
              ElementsAre(ElementsAre(8, 4), ElementsAre(5, 1), ElementsAre(2, 3)));
  EXPECT_THAT(loaded_batches(second),
              ElementsAre(ElementsAre(9, 0), ElementsAre(6, 7), ElementsAre(8, 4)));
}

TEST(ShardedLoader, StartsAtTheEpochOfTheLoaderAndThenCountsForItself) {
  auto loader = data_loader(integers_below(2), {.batch_size = 2});
  loader.set_epoch(3);
  auto sharded = loader.sharded({});
  loaded_batches(sharded);
  EXPECT_EQ(sharded.epoch(), 4);
  EXPECT_EQ(loader.epoch(), 3);
}

TEST(ShardedLoader, SamplesThatOnlyEvenOutAreMarked) {
  auto loader = data_loader(integers_below(5), {.batch_size = 2});
  std::vector<int64_t> real;
  for (int rank = 0; rank < 2; ++rank) {
    for (auto& batch : loader.sharded({.rank = rank, .world_size = 2})) {
      EXPECT_EQ(batch.data.size(0), 2);
      for (const int64_t value : values(batch.data.masked_select(batch.info().valid_mask()))) {
        real.push_back(value);
      }
    }
  }
  std::ranges::sort(real);
  EXPECT_THAT(real, ElementsAre(0, 1, 2, 3, 4));
}

TEST(ShardedLoader, SplitBatchesSharesEachBatch) {
  auto loader = data_loader(integers_below(8), {.batch_size = 4});
  EXPECT_THAT(loaded_batches(loader.sharded({.rank = 1, .world_size = 2, .split_batches = true})),
              ElementsAre(ElementsAre(2, 3), ElementsAre(6, 7)));
  EXPECT_THROW(data_loader(integers_below(8), {.batch_size = 3})
                   .sharded({.rank = 0, .world_size = 2, .split_batches = true}),
               UsageError);
}

TEST(ShardedLoader, ASingleProcessKeepsAShortLastBatch) {
  auto loader = data_loader(integers_below(3), {.batch_size = 2});
  EXPECT_THAT(loaded_batches(loader.sharded({})), ElementsAre(ElementsAre(0, 1), ElementsAre(2)));
}

TEST(ShardedLoader, PutsTheBatchOnItsDevice) {
  auto loader = data_loader(integers_below(2), {.batch_size = 2});
  const c10::Device meta(c10::kMeta);  // the one other device that every machine has
  auto placed = loader.sharded({.device = meta});
  auto left = loader.sharded({.device = meta, .place_on_device = false});
  EXPECT_EQ(placed.begin()->data.device(), meta);
  EXPECT_EQ(placed.begin()->target.device(), meta);
  EXPECT_EQ(left.begin()->data.device(), c10::Device(c10::kCPU));
}

TEST(ShardedLoader, RefusesToBeShardedTwice) {
  auto loader = data_loader(integers_below(4), {.batch_size = 2}).sharded({});
  EXPECT_THROW(loader.sharded({}), UsageError);
}

TEST(TensorDataset, KeepsDataAndTargetTogether) {
  const TensorDataset dataset = integers_below(4);
  const std::vector<size_t> indices{3, 1};
  EXPECT_THAT(values(dataset.get_batch(indices).data), ElementsAre(3, 1));
  EXPECT_THAT(values(dataset.get_batch(indices).target), ElementsAre(30, 10));
  EXPECT_THAT(values(dataset.get(2).data), ElementsAre(2));
  EXPECT_THAT(values(dataset.get(2).target), ElementsAre(20));
}

TEST(TensorDataset, RefusesTensorsThatDoNotMatch) {
  try {
    TensorDataset(at::zeros({3, 2}), at::zeros({4}));
    FAIL() << "no error";
  } catch (const UsageError& error) {
    EXPECT_EQ(error.message(), "TensorDataset: data has 3 rows, target has 4");
  }
  EXPECT_THROW(TensorDataset(at::scalar_tensor(1), at::zeros({1})), UsageError);
  EXPECT_THROW(TensorDataset(at::Tensor(), at::zeros({1})), UsageError);
}

}  // namespace
}  // namespace accelerate
