// Loops over prepared loaders on several ranks.
#include "multiproc/loading.h"

namespace accelerate::test {
namespace {

using testing::ElementsAreArray;

struct LoaderOn : Ranks, testing::WithParamInterface<bool> {
  static ShardingOptions sharing() { return {.dispatch_batches = GetParam()}; }
};
INSTANTIATE_TEST_SUITE_P(Ranks, LoaderOn, testing::Bool(), [](const auto& info) {
  return info.param ? std::string("Dispatch") : std::string("Shard");
});

TEST_P(LoaderOn, EvaluatingInsideTheTrainingLoopDisturbsNeither) {
  run(2, [](const Rank&) {
    Accelerator accelerator = sharding_accelerator(sharing());
    const auto train =
        accelerator.prepare(data_loader(Integers{12}, {.batch_size = 2, .num_workers = 2}));
    const auto eval = accelerator.prepare(data_loader(Integers{7}, {.batch_size = 2}));
    std::vector<int64_t> seen;
    for (const auto& batch : train) {
      EXPECT_THAT(real_samples(eval, accelerator), ElementsAreArray(integers_below(7)));
      for (const int64_t value : values(accelerator.gather(batch.data))) seen.push_back(value);
    }
    EXPECT_THAT(seen, ElementsAreArray(integers_below(12)));
    EXPECT_EQ(train.epoch(), 1);
    EXPECT_EQ(eval.epoch(), 3);
  });
}

TEST_P(LoaderOn, LeavingEarlyOnAllRanksLeavesNothingBehind) {
  run(3, [](const Rank&) {
    Accelerator accelerator = sharding_accelerator(sharing());
    for (const int workers : {0, 2}) {
      const auto loader =
          accelerator.prepare(data_loader(Integers{20}, {.batch_size = 2, .num_workers = workers}));
      for (int64_t batches = 0; batches < 4; ++batches) {
        for (const auto& batch : loader) {
          if (batch.info().index >= batches) break;
        }
      }
      EXPECT_THAT(real_samples(loader, accelerator), ElementsAreArray(integers_below(20)));
      try {
        for (const auto& batch : loader) {
          if (batch.info().index == 1) throw std::runtime_error("of the loop");
        }
      } catch (const std::runtime_error&) {
      }
      EXPECT_THAT(real_samples(loader, accelerator), ElementsAreArray(integers_below(20)));
    }
  });
}

TEST_P(LoaderOn, RanksDrawTheSameNumbersOnceAPassHasBegun) {
  run(3, [](const Rank& rank) {
    ShardingOptions sharding = sharing();
    sharding.rng_types = {RngType::kTorch, RngType::kCuda};
    Accelerator accelerator = sharding_accelerator(sharding);
    const auto loader = accelerator.prepare(data_loader(Integers{6}, {.batch_size = 1}));
    torch::manual_seed(0);
    const at::Tensor of_rank_zero = torch::rand({4}, test_device());
    torch::manual_seed(rank.rank);
    for (const auto& batch : loader) {
      if (batch.info().index == 0) {
        EXPECT_TRUE(torch::rand({4}, test_device()).equal(of_rank_zero));
      }
    }
    // Without it the ranks' generators are left alone.
    Accelerator silent = sharding_accelerator(sharing());
    const auto other = silent.prepare(data_loader(Integers{6}, {.batch_size = 1}));
    torch::manual_seed(rank.rank);
    const auto it = other.begin();
    EXPECT_EQ(torch::rand({4}, test_device()).equal(of_rank_zero), rank.rank == 0);
    silent.wait_for_everyone();
  });
}

TEST_P(LoaderOn, UnplacedBatchesStayWhereTheDatasetPutThem) {
  run(2, [](const Rank& rank) {
    Accelerator accelerator = sharding_accelerator(sharing());
    const auto batches = data_loader(Integers{4}, {.batch_size = 2});
    const auto [left, placed] = accelerator.prepare(unplaced(batches), batches);
    EXPECT_FALSE(left.shard()->place_on_device);
    EXPECT_TRUE(placed.shard()->place_on_device);
    EXPECT_EQ(left.shard()->rank, rank.rank);
    for (const auto& batch : left) EXPECT_TRUE(batch.data.is_cpu());
    for (const auto& batch : placed) EXPECT_EQ(batch.data.device(), test_device());
    EXPECT_EQ(batches_of(left), batches_of(placed));
  });
}

TEST_P(LoaderOn, EveryRankSaysThatItStandsAtTheSamePlace) {
  run(3, [](const Rank&) {
    Accelerator accelerator = sharding_accelerator(sharing());
    const auto loader = accelerator.prepare(
        data_loader(Integers{25}, {.batch_size = 2, .shuffle = true, .num_workers = 2}));
    int64_t used = 0;
    for ([[maybe_unused]] const auto& batch : loader) {
      const LoaderState state = loader.state_dict();
      used = std::min<int64_t>(25, used + 6);
      EXPECT_EQ(state.position, used);
      const at::Tensor own = torch::tensor(
          {static_cast<int64_t>(state.seed), state.epoch, state.position, state.size});
      for (const at::Tensor& other : accelerator.communicator().all_gather(own)) {
        EXPECT_TRUE(other.equal(own));
      }
    }
    EXPECT_EQ(loader.state_dict().position, 0);
    EXPECT_EQ(loader.state_dict().epoch, 1);
  });
}

}  // namespace
}  // namespace accelerate::test
