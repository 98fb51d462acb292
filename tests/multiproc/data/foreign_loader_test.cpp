// Loaders of other libraries on several ranks: rank 0 reads them and every rank gets its part.
#include <atomic>

#include "multiproc/loading.h"

namespace accelerate::test {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;

// Sample i is i, its target 10 i.
struct Examples : torch::data::datasets::Dataset<Examples> {
  explicit Examples(int64_t n) : n(n) {}
  torch::data::Example<> get(size_t index) override {
    const auto i = static_cast<int64_t>(index);
    return {torch::tensor(i), torch::tensor(10 * i)};
  }
  std::optional<size_t> size() const override { return static_cast<size_t>(n); }
  int64_t n;
};

auto stacked(int64_t n) { return Examples(n).map(torch::data::transforms::Stack<>()); }

auto in_order(auto dataset, int64_t batch_size, size_t workers) {
  return torch::data::make_data_loader<torch::data::samplers::SequentialSampler>(
      std::move(dataset),
      torch::data::DataLoaderOptions(static_cast<size_t>(batch_size)).workers(workers));
}

struct ForeignLoader : Ranks {};

TEST_F(ForeignLoader, OfTorchIsSharedOverTheRanks) {
  run(2, [](const Rank& rank) {
    Accelerator accelerator = sharding_accelerator();
    for (const size_t workers : {0, 2}) {
      auto torch_loader = in_order(stacked(11), 2, workers);
      const auto loader = accelerator.prepare(*torch_loader);
      for (int epoch = 0; epoch < 2; ++epoch) {
        std::vector<std::vector<int64_t>> data;
        for (const auto& batch : loader) {
          data.push_back(values(batch.data));
          EXPECT_TRUE(batch.target.equal(batch.data * 10));
          EXPECT_EQ(batch.info().epoch, epoch);
          EXPECT_EQ(batch.info().is_last, batch.info().index == 2);
        }
        const std::vector<std::vector<std::vector<int64_t>>> expected{{{0, 1}, {4, 5}, {8, 9}},
                                                                      {{2, 3}, {6, 7}, {10, 0}}};
        EXPECT_EQ(data, expected[static_cast<size_t>(rank.rank)]);
      }
      EXPECT_THAT(real_samples(loader, accelerator), ElementsAreArray(integers_below(11)));
    }
  });
}

TEST_F(ForeignLoader, WithoutStackItsListsOfExamplesAreCollated) {
  run(3, [](const Rank&) {
    Accelerator accelerator = sharding_accelerator();
    const auto loader = accelerator.prepare(in_order(Examples(7), 2, 1));
    EXPECT_THAT(real_samples(loader, accelerator), ElementsAreArray(integers_below(7)));
    for (const auto& batch : loader) EXPECT_TRUE(batch.target.equal(batch.data * 10));
  });
}

TEST_F(ForeignLoader, IsTakenByReferenceByPointerAndByValue) {
  run(2, [](const Rank&) {
    Accelerator accelerator = sharding_accelerator();
    auto referenced = in_order(stacked(4), 1, 0);
    EXPECT_EQ(real_samples(accelerator.prepare(*referenced), accelerator).size(), 4u);
    EXPECT_EQ(real_samples(accelerator.prepare(referenced), accelerator).size(), 4u);
    EXPECT_EQ(real_samples(accelerator.prepare(in_order(stacked(4), 1, 0)), accelerator).size(),
              4u);
    // The sampler of one with workers can be counted once; then rank 0 reads its batches.
    auto with_workers = in_order(stacked(4), 1, 2);
    for (const bool counted : {true, false}) {
      const auto loader = accelerator.prepare(*with_workers);
      EXPECT_EQ(loader.is_batch_stream(), !counted);
      EXPECT_EQ(real_samples(loader, accelerator).size(), 4u);
    }
    const auto unplaced_loader = accelerator.prepare(unplaced(referenced));
    EXPECT_FALSE(unplaced_loader.shard()->place_on_device);
    EXPECT_EQ(real_samples(unplaced_loader, accelerator).size(), 4u);
  });
}

TEST_F(ForeignLoader, LeftEarlyBeginsAnew) {
  run(2, [](const Rank& rank) {
    Accelerator accelerator = sharding_accelerator();
    for (const size_t workers : {0, 2}) {
      auto torch_loader = in_order(stacked(20), 2, workers);
      const auto loader = accelerator.prepare(*torch_loader);
      for (int times = 0; times < 3; ++times) {
        for (const auto& batch : loader) {
          EXPECT_THAT(values(batch.data), ElementsAre(2 * rank.rank, 2 * rank.rank + 1));
          break;
        }
      }
      EXPECT_THAT(real_samples(loader, accelerator), ElementsAreArray(integers_below(20)));
    }
  });
}

// Counts the samples that were read on this rank, in all copies.
struct CountedExamples : torch::data::datasets::Dataset<CountedExamples> {
  explicit CountedExamples(std::shared_ptr<std::atomic<int64_t>> reads) : reads(std::move(reads)) {}
  torch::data::Example<> get(size_t index) override {
    ++*reads;
    return {torch::tensor(static_cast<int64_t>(index)), torch::tensor(0)};
  }
  std::optional<size_t> size() const override { return 12; }
  std::shared_ptr<std::atomic<int64_t>> reads;
};

TEST_F(ForeignLoader, OverRandomAccessIsReadByEachRankForItself) {
  run(2, [](const Rank&) {
    for (const size_t workers : {0, 3}) {
      Accelerator accelerator = sharding_accelerator({.compare_samples = false});
      const auto reads = std::make_shared<std::atomic<int64_t>>(0);
      const auto loader = accelerator.prepare(torch::data::make_data_loader(
          CountedExamples(reads).map(torch::data::transforms::Stack<>()),
          torch::data::DataLoaderOptions(2).drop_last(workers == 0).workers(workers)));
      EXPECT_EQ(loader.size(), 3);
      EXPECT_FALSE(loader.shard()->dispatch);
      EXPECT_FALSE(loader.is_batch_stream());
      auto first = real_samples(loader, accelerator), second = real_samples(loader, accelerator);
      EXPECT_EQ(*reads, 12) << "6 of 12 samples in each of two passes";
      EXPECT_NE(first, second) << "shuffled anew";
      std::ranges::sort(first);
      EXPECT_THAT(first, ElementsAreArray(integers_below(12)));
    }
  });
}

TEST_F(ForeignLoader, OverRandomAccessContinuesAtASampleAndReadsNoOther) {
  run(2, [](const Rank&) {
    for (const size_t workers : {0, 3}) {
      Accelerator accelerator = sharding_accelerator({.compare_samples = false});
      const auto reads = std::make_shared<std::atomic<int64_t>>(0);
      const auto make = [&] {
        return accelerator.prepare(torch::data::make_data_loader(
            CountedExamples(reads).map(torch::data::transforms::Stack<>()),
            torch::data::DataLoaderOptions(2).workers(workers)));
      };
      const auto loader = make();
      std::vector<int64_t> all;
      LoaderState state;
      for (const auto& batch : loader) {
        if (batch.info().index == 0) {
          state = loader.state_dict();
        } else {
          const auto own = values(batch.data);
          all.insert(all.end(), own.begin(), own.end());
        }
      }
      EXPECT_EQ(state.position, 4);
      *reads = 0;
      auto resumed = make();
      resumed.load_state_dict(state);
      std::vector<int64_t> rest;
      for (const auto& batch : batches_of(resumed))
        rest.insert(rest.end(), batch.begin(), batch.end());
      EXPECT_EQ(rest, all);
      EXPECT_EQ(*reads, 4);
    }
  });
}

TEST_F(ForeignLoader, ThreadsOfTorchTellWhichSamplesTheyCouldNotRead) {
  struct Broken : torch::data::datasets::Dataset<Broken> {
    torch::data::Example<> get(size_t index) override {
      if (index == 5) throw std::runtime_error("no such file");
      return {torch::tensor(static_cast<int64_t>(index)), torch::tensor(0)};
    }
    std::optional<size_t> size() const override { return 12; }
  };
  run(2, [](const Rank& rank) {
    Accelerator accelerator = sharding_accelerator({.compare_samples = false});
    const auto loader =
        accelerator.prepare(in_order(Broken().map(torch::data::transforms::Stack<>()), 2, 2));
    const auto read_all = [&] { return batches_of(loader).size(); };
    if (rank.rank == 0) {
      EXPECT_THAT(thrown_by<DataError>([&] { (void)read_all(); }),
                  testing::AllOf(testing::HasSubstr("no such file"), testing::HasSubstr("5")));
    } else {
      EXPECT_EQ(read_all(), 3u);
    }
    // A pass that was left goes on from its beginning.
    EXPECT_THAT(values((*loader.begin()).data), ElementsAre(2 * rank.rank, 2 * rank.rank + 1));
  });
}

// An order of its own.
struct Backwards : torch::data::samplers::Sampler<> {
  explicit Backwards(size_t size) : size(size), left(size) {}
  void reset(std::optional<size_t> = std::nullopt) override { left = size; }
  std::optional<std::vector<size_t>> next(size_t batch_size) override {
    std::vector<size_t> indices;
    while (left > 0 && indices.size() < batch_size) indices.push_back(--left);
    if (indices.empty()) return std::nullopt;
    return indices;
  }
  void save(torch::serialize::OutputArchive&) const override {}
  void load(torch::serialize::InputArchive&) override {}
  size_t size, left;
};

auto backwards(int64_t n, size_t batch_size) {
  return torch::data::make_data_loader<Backwards>(stacked(n),
                                                  torch::data::DataLoaderOptions(batch_size));
}

TEST_F(ForeignLoader, ThatRankZeroReadsForAllIsSaidOnce) {
  const auto output = [&](bool sharded) {
    spawn(2, [&](const Rank&) {
      Accelerator accelerator = sharding_accelerator();
      if (sharded) {
        (void)accelerator.prepare(in_order(stacked(4), 1, 0));
        (void)accelerator.prepare(in_order(stacked(4), 1, 2));
      } else {
        const auto first = accelerator.prepare(backwards(4, 1));
        const auto second = accelerator.prepare(backwards(4, 1));
        EXPECT_TRUE(first.shard()->dispatch);
        EXPECT_TRUE(first.is_batch_stream());
      }
    });
    for (const int rank : {0, 1}) EXPECT_EQ(exit_code_of(rank), 0);
    wait_all();
    return output_of(0) + output_of(1);
  };
  const std::string said = "rank 0 reads the batches of a torch::data loader for all ranks";
  EXPECT_THAT(output(true), testing::Not(testing::HasSubstr(said)));
  const std::string text = output(false);
  const size_t at = text.find(said);
  ASSERT_NE(at, std::string::npos) << text;
  EXPECT_EQ(text.find(said, at + 1), std::string::npos) << text;
}

TEST_F(ForeignLoader, ContinuesPastTheBatchesThatWereUsed) {
  run(2, [](const Rank&) {
    Accelerator accelerator = sharding_accelerator();
    const auto loader = accelerator.prepare(backwards(12, 2));
    for (const auto& batch : loader) {
      if (batch.info().index == 0) break;
    }
    const LoaderState state = loader.state_dict();
    EXPECT_TRUE(state.counts_batches);
    EXPECT_EQ(state.position, 2);
    auto resumed = accelerator.prepare(backwards(12, 2));
    resumed.load_state_dict(state);
    EXPECT_THAT(real_samples(resumed, accelerator), ElementsAre(7, 6, 5, 4, 3, 2, 1, 0));
    EXPECT_EQ(real_samples(resumed, accelerator).size(), 12u);
  });
}

TEST_F(ForeignLoader, ShufflesInTorchsOwnWayAndEverySampleComesOnce) {
  run(2, [](const Rank& rank) {
    torch::manual_seed(rank.rank);
    Accelerator accelerator = sharding_accelerator();
    const auto loader = accelerator.prepare(
        torch::data::make_data_loader(stacked(17), torch::data::DataLoaderOptions(3).workers(2)));
    for (int epoch = 0; epoch < 2; ++epoch) {
      auto seen = real_samples(loader, accelerator);
      std::ranges::sort(seen);
      EXPECT_THAT(seen, ElementsAreArray(integers_below(17)));
    }
  });
}

std::vector<at::Tensor> batches_up_to(int64_t n, int64_t size) {
  std::vector<at::Tensor> batches;
  for (int64_t first = 0; first < n; first += size) {
    batches.push_back(torch::arange(first, std::min(n, first + size)));
  }
  return batches;
}

TEST_F(ForeignLoader, AnyRangeOfBatchesIsOne) {
  run(3, [](const Rank&) {
    Accelerator accelerator = sharding_accelerator();
    for (const int workers : {0, 2}) {
      const auto loader = accelerator.prepare(
          data_loader(batch_stream(batches_up_to(20, 3)), {.num_workers = workers}));
      EXPECT_EQ(loader.size(), 3);
      EXPECT_THAT(real_samples(loader, accelerator), ElementsAreArray(integers_below(20)));
      EXPECT_EQ(batches_of(loader).size(), 3u);
    }
  });
}

TEST_F(ForeignLoader, SplitBatchesCutsEachBatch) {
  run(2, [](const Rank& rank) {
    Accelerator accelerator = sharding_accelerator({.split_batches = true});
    const auto loader = accelerator.prepare(data_loader(batch_stream(batches_up_to(11, 4))));
    const std::vector<std::vector<std::vector<int64_t>>> expected{{{0, 1}, {4, 5}, {8, 9}},
                                                                  {{2, 3}, {6, 7}, {10, 0}}};
    EXPECT_EQ(loader.size(), 3);
    EXPECT_EQ(batches_of(loader), expected[static_cast<size_t>(rank.rank)]);
  });
}

TEST_F(ForeignLoader, WhatTheLoopDoesToABatchDoesNotReachLaterOnes) {
  run(2, [](const Rank& rank) {
    Accelerator accelerator = sharding_accelerator({.split_batches = true});
    const auto loader = accelerator.prepare(
        data_loader(batch_stream([](int64_t) { return batches_up_to(11, 4); })));
    std::vector<std::vector<int64_t>> seen;
    for (auto& batch : loader) {
      seen.push_back(values(batch.data));
      batch.data.add_(100);  // in place
    }
    // The last batch is filled up with the first sample, as it was.
    EXPECT_EQ(seen.back(),
              (rank.rank == 0 ? std::vector<int64_t>{8, 9} : std::vector<int64_t>{10, 0}));
  });
}

TEST_F(ForeignLoader, DropLastLeavesOutAnIncompleteRound) {
  run(2, [](const Rank&) {
    Accelerator accelerator = sharding_accelerator();
    const auto loader =
        accelerator.prepare(data_loader(batch_stream(batches_up_to(12, 4)), {.drop_last = true}));
    EXPECT_EQ(loader.size(), 1);
    EXPECT_THAT(real_samples(loader, accelerator), ElementsAreArray(integers_below(8)));
  });
}

}  // namespace
}  // namespace accelerate::test
