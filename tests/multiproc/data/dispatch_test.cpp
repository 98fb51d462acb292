// Rank 0 reads for all ranks: what arrives on each of them.
#include "multiproc/loading.h"

namespace accelerate::test {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::IsEmpty;

struct Dispatch : Ranks {};

TEST_F(Dispatch, OnlyRankZeroReads) {
  struct OnRankZero {
    int rank = 0;
    size_t size() const { return rank == 0 ? 6 : 0; }  // the others have no data at all
    int64_t get(size_t index) const {
      if (rank != 0) throw std::logic_error("read on another rank");
      return static_cast<int64_t>(index);
    }
  };
  run(3, [](const Rank& rank) {
    Accelerator accelerator = dispatching();
    for (const int workers : {0, 2}) {
      auto loader = accelerator.prepare(
          data_loader(OnRankZero{rank.rank}, {.batch_size = 1, .num_workers = workers}));
      EXPECT_EQ(loader.size(), 2);
      EXPECT_THAT(batches_of(loader),
                  ElementsAre(ElementsAre(rank.rank), ElementsAre(3 + rank.rank)));
      // Any rank's state is good for all of them.
      loader.load_state_dict({.epoch = 5, .position = 3, .size = 6});
      EXPECT_THAT(batches_of(loader), ElementsAre(ElementsAre(3 + rank.rank)));
      EXPECT_EQ(loader.state_dict().size, 6);
    }
  });
}

TEST_F(Dispatch, ShufflesAsEveryRankByItselfWould) {
  run(2, [](const Rank& rank) {
    torch::manual_seed(100 + rank.rank);
    Accelerator reading = dispatching();
    Accelerator sharing = sharding_accelerator();
    const LoaderOptions options{.batch_size = 3, .shuffle = true, .seed = 11};
    const auto dispatched = reading.prepare(data_loader(Integers{12}, options));
    const auto shared = sharing.prepare(data_loader(Integers{12}, options));
    for (int epoch = 0; epoch < 2; ++epoch) EXPECT_EQ(batches_of(dispatched), batches_of(shared));
    const auto seedless =
        reading.prepare(data_loader(Integers{12}, {.batch_size = 3, .shuffle = true}));
    auto all = real_samples(seedless, reading);
    std::ranges::sort(all);
    EXPECT_THAT(all, ElementsAreArray(integers_below(12)));
  });
}

// Samples of every shape that a batch can have.
struct Sentence {
  at::Tensor tokens{};
  std::string text{};
  double weight = 0;
  struct Batch {
    at::Tensor tokens{};
    std::vector<std::string> text{};
    at::Tensor weight{};
    ACCELERATE_FIELDS(tokens, text, weight)
  };
  ACCELERATE_FIELDS(tokens, text, weight)
};

template <class Make>
struct Made {
  int64_t n;
  Make make;
  int64_t size() const { return n; }
  auto get(size_t index) const { return make(static_cast<int64_t>(index)); }
};
template <class Make>
auto made(int64_t n, Make make) {
  return Made<Make>{n, make};
}

TEST_F(Dispatch, NestedBatchesArriveWithEveryFieldAndType) {
  run(2, [](const Rank& rank) {
    Accelerator accelerator = dispatching();
    const int64_t mine = rank.rank;  // of two samples the one of this rank
    const LoaderOptions options{.batch_size = 1};

    using Columns = std::map<std::string, at::Tensor>;
    const auto maps = made(2, [](int64_t i) {
      return Columns{{"ids", torch::full({2, 2}, i)}, {"mask", torch::tensor(i == 1)}};
    });
    for (const auto& batch : accelerator.prepare(data_loader(maps, options))) {
      ASSERT_EQ(batch.size(), 2u);
      EXPECT_TRUE(batch.at("ids").cpu().equal(torch::full({1, 2, 2}, mine)));
      EXPECT_EQ(batch.at("mask").scalar_type(), at::kBool);
      EXPECT_EQ(batch.at("mask").item<bool>(), mine == 1);
    }

    const auto tuples = made(2, [](int64_t i) {
      return std::tuple(torch::full({3}, 0.5 * static_cast<double>(i), at::kHalf), i,
                        std::pair(std::string(static_cast<size_t>(i), 'x'), 1.5F));
    });
    for (auto& batch : accelerator.prepare(data_loader(tuples, options))) {
      auto& [halves, number, pair] = batch;
      EXPECT_EQ(halves.scalar_type(), at::kHalf);
      EXPECT_TRUE(
          halves.cpu().equal(torch::full({1, 3}, 0.5 * static_cast<double>(mine), at::kHalf)));
      EXPECT_EQ(number.template item<int64_t>(), mine);
      EXPECT_THAT(pair.first, ElementsAre(std::string(static_cast<size_t>(mine), 'x')));
      EXPECT_EQ(pair.second.scalar_type(), at::kFloat);
    }

    const auto sentences = made(2, [](int64_t i) {
      return Sentence{.tokens = torch::arange(4) + i,
                      .text = "sentence " + std::to_string(i),
                      .weight = 0.25 * static_cast<double>(i)};
    });
    for (const auto& batch : accelerator.prepare(data_loader(sentences, options))) {
      EXPECT_TRUE(batch.tokens.cpu().equal((torch::arange(4) + mine).unsqueeze(0)));
      EXPECT_THAT(batch.text, ElementsAre("sentence " + std::to_string(mine)));
      EXPECT_EQ(batch.weight.template item<double>(), 0.25 * static_cast<double>(mine));
    }

    const auto optionals = made(2, [](int64_t i) {
      return std::pair(std::optional<at::Tensor>(),
                       std::array<at::Tensor, 2>{torch::tensor(i), torch::tensor(-i)});
    });
    for (const auto& batch : accelerator.prepare(data_loader(optionals, options))) {
      EXPECT_FALSE(batch.first.has_value());
      EXPECT_EQ(batch.second[1].template item<int64_t>(), -mine);
    }
  });
}

TEST_F(Dispatch, StringsOfDifferentLengthAndTensorsOfDifferentWidthArriveWhole) {
  run(3, [](const Rank& rank) {
    Accelerator accelerator = dispatching();
    // The batch is padded to its longest sample, so widths differ from round to round.
    const auto padded = [](std::vector<int64_t>&& lengths) {
      const int64_t width = *std::ranges::max_element(lengths);
      at::Tensor batch = torch::zeros({static_cast<int64_t>(lengths.size()), width}, at::kLong);
      std::vector<std::string> text;
      for (size_t i = 0; i < lengths.size(); ++i) {
        batch[static_cast<int64_t>(i)].narrow(0, 0, lengths[i]).fill_(lengths[i]);
        text.emplace_back(static_cast<size_t>(lengths[i]) * 1000, 'y');
      }
      return std::pair(batch, text);
    };
    const auto loader =
        accelerator.prepare(data_loader(Integers{6}, {.batch_size = 1, .num_workers = 1}, padded));
    int64_t round = 0;
    for (const auto& batch : loader) {
      const int64_t length = 3 * round + rank.rank;
      EXPECT_EQ(batch.first.sizes(), (at::IntArrayRef{1, 3 * round + 2}));
      EXPECT_EQ(batch.first.sum().template item<int64_t>(), length * length);
      EXPECT_THAT(batch.second, ElementsAre(std::string(static_cast<size_t>(length) * 1000, 'y')));
      ++round;
    }
    EXPECT_EQ(round, 2);
  });
}

TEST_F(Dispatch, TensorsWithoutElementsAndUndefinedOnesArrive) {
  run(2, [](const Rank&) {
    Accelerator accelerator = dispatching();
    const auto empty = made(4, [](int64_t) { return Sample{.data = torch::empty({3, 0})}; });
    int64_t batches = 0;
    for (const auto& batch : accelerator.prepare(data_loader(empty, {.batch_size = 2}))) {
      EXPECT_EQ(batch.data.sizes(), (at::IntArrayRef{2, 3, 0}));
      EXPECT_FALSE(batch.target.defined());
      ++batches;
    }
    EXPECT_EQ(batches, 1);
  });
}

TEST_F(Dispatch, AShortLastRoundIsSharedAndFilledUp) {
  run(4, [](const Rank& rank) {
    Accelerator accelerator = dispatching();
    const auto loader = accelerator.prepare(data_loader(Integers{13}, {.batch_size = 2}));
    EXPECT_EQ(loader.size(), 2);
    std::vector<std::vector<int64_t>> batches;
    std::vector<int64_t> valid;
    std::vector<bool> last;
    for (const auto& batch : loader) {
      batches.push_back(values(batch.data));
      valid.push_back(batch.info().valid);
      last.push_back(batch.info().is_last);
      EXPECT_EQ(batch.info().size, batch.data.size(0));
      EXPECT_EQ(batch.info().index, static_cast<int64_t>(last.size()) - 1);
    }
    const std::vector<std::vector<int64_t>> second{{8, 9}, {10, 11}, {12, 0}, {1, 2}};
    const std::vector<int64_t> real{2, 2, 1, 0};
    const auto r = static_cast<size_t>(rank.rank);
    EXPECT_THAT(batches, ElementsAre(ElementsAre(2 * rank.rank, 2 * rank.rank + 1), second[r]));
    EXPECT_THAT(valid, ElementsAre(2, real[r]));
    EXPECT_THAT(last, ElementsAre(false, true));
    EXPECT_EQ(loader.epoch(), 1);
  });
}

TEST_F(Dispatch, FewerSamplesThanRanksGoRoundAndNoneGiveNothing) {
  run(4, [](const Rank& rank) {
    Accelerator accelerator = dispatching();
    const auto one = accelerator.prepare(data_loader(Integers{1}, {.batch_size = 3}));
    EXPECT_THAT(real_samples(one, accelerator), ElementsAre(0));
    EXPECT_THAT(batches_of(one), ElementsAre(ElementsAre(0)));
    const auto three = accelerator.prepare(data_loader(Integers{3}, {.batch_size = 3}));
    EXPECT_THAT(batches_of(three), ElementsAre(ElementsAre(rank.rank % 3)));
    const auto none = accelerator.prepare(data_loader(Integers{0}, {.batch_size = 3}));
    EXPECT_THAT(batches_of(none), IsEmpty());
    EXPECT_EQ(none.epoch(), 1);
    const auto dropped =
        accelerator.prepare(data_loader(Integers{11}, {.batch_size = 3, .drop_last = true}));
    EXPECT_THAT(batches_of(dropped), IsEmpty());
  });
}

TEST_F(Dispatch, WholeBatchesOfASamplerAreJoinedAndCut) {
  run(2, [](const Rank& rank) {
    Accelerator accelerator = dispatching();
    const auto sampler = accelerate::batches_of(
        std::vector<std::vector<int64_t>>{{0, 1, 2}, {3}, {4, 5}, {6, 7, 8}, {9}});
    const auto loader = accelerator.prepare(data_loader(Integers{10}, {.batch_sampler = sampler}));
    const std::vector<std::vector<std::vector<int64_t>>> expected{{{0, 1}, {4, 5, 6}, {9}},
                                                                  {{2, 3}, {7, 8, 0}, {0}}};
    EXPECT_EQ(batches_of(loader), expected[static_cast<size_t>(rank.rank)]);
    EXPECT_THAT(real_samples(loader, accelerator), ElementsAreArray(integers_below(10)));
  });
}

TEST_F(Dispatch, AFunctionOfTheUserCutsTheBatches) {
  run(2, [](const Rank& rank) {
    Accelerator accelerator = dispatching();
    // Time first, batch second: the default would cut the time.
    struct Columns {
      at::Tensor steps{};
      ACCELERATE_FIELDS(steps)
    };
    const auto time_first = [](std::vector<int64_t>&& samples) {
      return Columns{torch::tensor(samples, at::kLong).unsqueeze(0).repeat({5, 1})};
    };
    auto whole = data_loader(Integers{8}, {.batch_size = 2}, time_first);
    whole.slice_fn_for_dispatch([](const Columns& batch, const DispatchSlice& slice) {
      EXPECT_EQ(slice.world_size, 2);
      EXPECT_EQ(slice.first, slice.rank * 2);
      return Columns{batch.steps.slice(1, slice.first, slice.last)};
    });
    const auto loader = accelerator.prepare(whole);
    int64_t round = 0;
    for (const auto& batch : loader) {
      EXPECT_EQ(batch.steps.sizes(), (at::IntArrayRef{5, 2}));
      const int64_t first = 4 * round++ + 2 * rank.rank;
      EXPECT_THAT(values(batch.steps[4]), ElementsAre(first, first + 1));
    }
    EXPECT_EQ(round, 2);
  });
}

TEST_F(Dispatch, ContinuesOnAnotherNumberOfRanks) {
  const auto before = run_collect(2, [](const Rank&) {
    Accelerator accelerator = dispatching();
    const auto loader = accelerator.prepare(
        data_loader(Integers{23}, {.batch_size = 2, .shuffle = true, .num_workers = 2, .seed = 3}));
    std::vector<int64_t> seen;
    for (const auto& batch : loader) {
      for (const int64_t value : values(batch.data)) seen.push_back(value);
      if (batch.info().index == 2) break;
    }
    const LoaderState state = loader.state_dict();
    seen.insert(seen.begin(),
                {static_cast<int64_t>(state.seed), state.epoch, state.position, state.size});
    return seen;
  });
  ASSERT_EQ(before[0].size(), 10u);
  const LoaderState state{.seed = static_cast<uint64_t>(before[0][0]),
                          .epoch = before[0][1],
                          .position = before[0][2],
                          .size = before[0][3]};
  EXPECT_EQ(state, (LoaderState{.seed = 3, .epoch = 0, .position = 12, .size = 23}));
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(before[0][i], before[1][i]) << "states differ";
  std::vector<int64_t> seen;
  for (const auto& rank : before) seen.insert(seen.end(), rank.begin() + 4, rank.end());
  const auto after = run_collect(3, [state](const Rank&) {
    Accelerator accelerator = dispatching();
    auto whole = data_loader(Integers{23}, {.batch_size = 2, .shuffle = true, .seed = 3});
    whole.load_state_dict(state);
    const auto loader = accelerator.prepare(whole);
    EXPECT_EQ(loader.size(), 2);
    auto rest = real_samples(loader, accelerator);
    EXPECT_EQ(loader.epoch(), 1);
    EXPECT_EQ(real_samples(loader, accelerator).size(), 23u);
    return rest;
  });
  EXPECT_EQ(after[0], after[1]);
  seen.insert(seen.end(), after[0].begin(), after[0].end());
  std::ranges::sort(seen);
  EXPECT_THAT(seen, ElementsAreArray(integers_below(23)));
}

TEST_F(Dispatch, SkipsTheFirstBatches) {
  run(2, [](const Rank& rank) {
    Accelerator accelerator = dispatching();
    const auto loader = accelerator.prepare(data_loader(Integers{10}, {.batch_size = 2}));
    const auto rest = loader.skip_first_batches(1);
    EXPECT_EQ(rest.size(), 2);
    const std::vector<std::vector<std::vector<int64_t>>> expected{{{4, 5}, {8}}, {{6, 7}, {9}}};
    EXPECT_EQ(batches_of(rest), expected[static_cast<size_t>(rank.rank)]);
    EXPECT_EQ(batches_of(rest).size(), 3u);
  });
}

TEST_F(Dispatch, StreamsAreReadOnce) {
  run(2, [](const Rank& rank) {
    Accelerator accelerator = dispatching();
    const auto opened = std::make_shared<int>(0);
    const auto numbers = stream([opened](int64_t epoch) {
      ++*opened;
      return std::views::iota(100 * epoch, 100 * epoch + 7);
    });
    const auto loader = accelerator.prepare(data_loader(numbers, {.batch_size = 2}));
    EXPECT_THAT(real_samples(loader, accelerator), ElementsAre(0, 1, 2, 3, 4, 5, 6));
    EXPECT_THAT(real_samples(loader, accelerator), ElementsAre(100, 101, 102, 103, 104, 105, 106));
    EXPECT_EQ(*opened, rank.rank == 0 ? 2 : 0);
  });
}

}  // namespace
}  // namespace accelerate::test
