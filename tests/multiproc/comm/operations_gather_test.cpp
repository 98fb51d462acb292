// gather() and gather_for_metrics() of nested values.
#include <accelerate/data_loader.h>
#include <accelerate/dataset.h>

#include <numeric>

#include "multiproc/comm/operations_values.h"

namespace accelerate::test {
namespace {

using testing::ElementsAre;

std::vector<int64_t> integers(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.to(at::kLong).cpu().contiguous();
  return {flat.data_ptr<int64_t>(), flat.data_ptr<int64_t>() + flat.numel()};
}

std::vector<int64_t> counted(int64_t n) {
  std::vector<int64_t> all(static_cast<size_t>(n));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

using Gather = OperationsOn;
INSTANTIATE_TEST_SUITE_P(Ranks, Gather, testing::Range(1, 5));

TEST_P(Gather, JoinsEveryLeafInRankOrder) {
  run_ranks([](const Rank& rank) {
    Group group;
    const Everything value = everything(rank.rank, 2);
    const std::vector<int64_t> rows(static_cast<size_t>(rank.world_size), 2);
    expect_same(gather(group.comm, value), expected_of(rows));
    expect_same(value, everything(rank.rank, 2));
  });
}

TEST_P(Gather, TakesRanksWithDifferentNumbersOfRowsAndWithNone) {
  run_ranks([](const Rank& rank) {
    Group group;
    std::vector<int64_t> rows{3, 0, 1, 4};
    rows.resize(static_cast<size_t>(rank.world_size));
    const auto own = rows[static_cast<size_t>(rank.rank)];
    expect_same(gather(group.comm, everything(rank.rank, own)), expected_of(rows));
    expect_same(gather(group.comm, rows_of(rank.rank, 0, 2)), torch::zeros({0, 2}));
  });
}

TEST_P(Gather, OfATensorWithoutDimensionsHasOneEntryARank) {
  run_ranks([](const Rank& rank) {
    Group group;
    EXPECT_TRUE(same(gather(group.comm, torch::tensor(rank.rank)), torch::arange(rank.world_size)));
  });
}

// One rank alone shares its memory: see OneRank.
struct GatherOnSeveral : OperationsOn {};
INSTANTIATE_TEST_SUITE_P(Ranks, GatherOnSeveral, testing::Range(2, 5));

TEST_P(GatherOnSeveral, OwnsItsMemoryAndHasNoGradient) {
  run_ranks([](const Rank& rank) {
    Group group;
    const at::Tensor alone = torch::ones({2}, torch::requires_grad());
    const std::pair<at::Tensor, at::Tensor> value{alone, torch::zeros({1})};
    at::Tensor result = gather(group.comm, alone);
    EXPECT_FALSE(result.requires_grad());
    result.zero_();
    auto both = gather(group.comm, value);
    EXPECT_FALSE(both.first.requires_grad());
    both.first.zero_();
    EXPECT_TRUE(same(both.second, torch::zeros({rank.world_size})));
    EXPECT_EQ(alone.sum().item<float>(), 2);
  });
}

TEST_P(Gather, OfEveryDtypeIsExact) {
  run_ranks([](const Rank& rank) {
    Group group;
    const auto dtypes = {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16,     at::kLong, at::kInt,
                         at::kShort,  at::kByte,  at::kChar, at::kComplexFloat, at::kBool};
    std::vector<at::Tensor> value;
    for (const auto dtype : dtypes) value.push_back(torch::full({3}, rank.rank).to(dtype));
    value.push_back(torch::complex(torch::ones({1}), torch::full({1}, rank.rank + 1.F)).conj());
    const auto all = gather(group.comm, value);
    const at::Tensor expected = torch::arange(rank.world_size).repeat_interleave(3);
    size_t place = 0;
    for (const auto dtype : dtypes) EXPECT_TRUE(same(all[place++], expected.to(dtype)));
    EXPECT_TRUE(same(at::imag(all[place]), -torch::arange(1., rank.world_size + 1., at::kFloat)));
  });
}

using Metrics = OperationsOn;
INSTANTIATE_TEST_SUITE_P(Ranks, Metrics, testing::Range(1, 5));

TEST_P(Metrics, SeeEverySampleOfAPassOnceWhateverTheSizes) {
  run_ranks([](const Rank& rank) {
    Group group;
    for (const int64_t n : {1, 2, 7, 8, 9, 16, 17}) {
      for (const bool even : {true, false}) {
        const TensorDataset dataset(torch::arange(n), torch::arange(n) * 2);
        const auto loader =
            data_loader(dataset, {.batch_size = 2})
                .sharded({.rank = rank.rank, .world_size = rank.world_size, .even_batches = even});
        // With even_batches off some ranks see fewer batches: they take part with empty ones.
        const auto rounds =
            static_cast<int64_t>((n + 2 * rank.world_size - 1) / (2 * rank.world_size));
        std::vector<std::pair<at::Tensor, BatchInfo>> batches;
        for (const auto& batch : loader) batches.emplace_back(batch.data, batch.info());
        while (static_cast<int64_t>(batches.size()) < rounds) {
          batches.emplace_back(torch::empty({0}, at::kLong), BatchInfo{});
        }
        std::vector<int64_t> seen;
        for (const auto& [data, info] : batches) {
          const auto [samples, doubled] =
              gather_for_metrics(group.comm, info, data, std::vector<at::Tensor>{data * 2});
          ASSERT_TRUE(same(doubled[0], samples * 2));
          const auto more = integers(samples);
          seen.insert(seen.end(), more.begin(), more.end());
        }
        EXPECT_EQ(seen, counted(n)) << "n " << n << ", even " << even;
      }
    }
  });
}

TEST_P(Metrics, KeepTheRowsOfRealSamplesOfEachRank) {
  run_ranks([](const Rank& rank) {
    Group group;
    // 4, 3, 0 and 1 real samples.
    const std::vector<int64_t> valid{4, 3, 0, 1};
    const BatchInfo info{.size = 4, .valid = valid[static_cast<size_t>(rank.rank)]};
    std::vector<at::Tensor> rows, outputs, sevens;
    std::vector<std::string> texts, words;
    for (int r = 0; r < rank.world_size; ++r) {
      const int64_t real = valid[static_cast<size_t>(r)];
      rows.push_back(rows_of(r, real));
      outputs.push_back(rows_of(r, 2 * real));
      sevens.push_back(rows_of(r, 7));
      for (int64_t i = 0; i < 4; ++i) {
        const std::string text = std::to_string(r) + ':' + std::to_string(i);
        if (r == rank.rank) texts.push_back(text);
        if (i < real) words.push_back(text);
      }
    }
    const auto [samples, double_outputs, others, scalar, text] =
        gather_for_metrics(group.comm, info, rows_of(rank.rank, 4), rows_of(rank.rank, 8),
                           rows_of(rank.rank, 7), torch::tensor(rank.rank), texts);
    EXPECT_TRUE(same(samples, torch::cat(rows)));               // one row per sample
    EXPECT_TRUE(same(double_outputs, torch::cat(outputs)));     // two rows a sample
    EXPECT_TRUE(same(others, torch::cat(sevens)));              // no multiple: as it is
    EXPECT_TRUE(same(scalar, torch::arange(rank.world_size)));  // one value a rank
    EXPECT_EQ(text, words);
  });
}

TEST_P(Metrics, WithoutABatchOrOfAFullOneAreAllRows) {
  run_ranks([](const Rank& rank) {
    Group group;
    const at::Tensor own = rows_of(rank.rank, 4);
    const at::Tensor all = gather(group.comm, own);
    EXPECT_TRUE(same(gather_for_metrics(group.comm, std::nullopt, own), all));
    EXPECT_TRUE(same(gather_for_metrics(group.comm, BatchInfo{.size = 4, .valid = 4}, own), all));
    EXPECT_TRUE(same(gather_for_metrics(group.comm, BatchInfo{.size = 0, .valid = 0}, own), all));
  });
}

TEST_P(Metrics, OfWholeBatchesKeepTheirNames) {
  run_ranks([](const Rank& rank) {
    Group group;
    const Batch<Sample> batch({.data = rows_of(rank.rank, 2), .target = rows_of(rank.rank, 2)},
                              {.size = 2, .valid = rank.rank == 0 ? 2 : 1});
    const Batch<Sample> all = gather_for_metrics(group.comm, batch.info(), batch);
    EXPECT_EQ(all.data.size(0), rank.world_size + 1);
    EXPECT_TRUE(same(all.data, all.target));
  });
}

TEST_P(Metrics, OfObjectsDropEntriesOfLists) {
  run_ranks([](const Rank& rank) {
    Group group;
    const BatchInfo info{.size = 2, .valid = rank.rank == 0 ? 2 : 1};
    const std::string name = std::to_string(rank.rank);
    const std::vector<std::map<std::string, int>> own{{{"a" + name, 1}}, {{"b" + name, 2}}};
    std::vector<std::map<std::string, int>> expected{{{"a0", 1}}, {{"b0", 2}}};
    for (int r = 1; r < rank.world_size; ++r) expected.push_back({{"a" + std::to_string(r), 1}});
    EXPECT_EQ(gather_object_for_metrics(group.comm, info, own), expected);
    EXPECT_EQ(gather_object_for_metrics(group.comm, info, own[0]).size(),
              static_cast<size_t>(rank.world_size));
    EXPECT_EQ(gather_object_for_metrics(group.comm, std::nullopt, own).size(),
              static_cast<size_t>(2 * rank.world_size));
  });
}

}  // namespace
}  // namespace accelerate::test
