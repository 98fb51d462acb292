// Datasets that differ from rank to rank are found when they are prepared.
#include <algorithm>
#include <random>

#include "multiproc/loading.h"

namespace accelerate::test {
namespace {

using testing::AllOf;
using testing::ElementsAreArray;
using testing::HasSubstr;
using testing::Not;

struct DataOfRanks : Ranks {
  static const RankOptions& talking() {
    static const RankOptions kOptions{.environment = {{"ACCELERATE_LOG_LEVEL", "info"}}};
    return kOptions;
  }
  // What a rank says where the data were not compared.
  static constexpr const char* kNotChecked = "whether all ranks have the same data was not checked";
};

std::vector<int64_t> shuffled_integers(int64_t n, int seed) {
  std::vector<int64_t> list = integers_below(n);
  std::shuffle(list.begin(), list.end(), std::mt19937(static_cast<unsigned>(seed)));
  return list;
}

// The n-th reading of whatever sample is `change(n)` beside the sample itself.
struct ChangingIntegers {
  std::function<int64_t()> change;
  int64_t size() const { return 16; }
  std::pair<int64_t, int64_t> get(size_t index) const {
    return {static_cast<int64_t>(index), change()};
  }
};

TEST_F(DataOfRanks, AreKnownByADigestOfEachSample) {
  run(1, [](const Rank&) {
    const at::Tensor points = torch::arange(12.0).view({4, 3});
    const auto digest_of_loader = [](const at::Tensor& data) {
      return data_loader(TensorDataset(data, torch::arange(4))).sample_digest().value();
    };
    const auto digest = digest_of_loader(points);
    const auto same = digest_of_loader(points.t().contiguous().t());
    const auto other = digest_of_loader(points.index({torch::tensor({0, 2, 1, 3})}));
    const auto other_type = digest_of_loader(points.to(torch::kDouble));
    for (const size_t index : {0, 1, 2, 3}) {
      EXPECT_EQ(digest(index), same(index));
      EXPECT_EQ(digest(index) == other(index), index == 0 || index == 3);
      EXPECT_NE(digest(index), other_type(index));
    }
    EXPECT_FALSE(data_loader(stream(integers_below(4))).sample_digest().has_value());
  });
}

TEST_F(DataOfRanks, ThatWereShuffledByEachForItselfAreRefused) {
  run(2, [](const Rank& rank) {
    Accelerator accelerator = sharding_accelerator();
    const auto list = shuffled_integers(16, rank.rank);
    const std::string error = thrown_by<UsageError>(
        [&] { (void)accelerator.prepare(data_loader(list, {.batch_size = 2})); });
    EXPECT_THAT(error, AllOf(HasSubstr("the ranks have different data: sample "),
                             HasSubstr(" of rank 1 is not that of rank 0\n  at   prepare\n  try  "),
                             HasSubstr("compare_samples = false")));
    // The ranks are still in step.
    const auto loader =
        accelerator.prepare(data_loader(shuffled_integers(16, 5), {.batch_size = 2}));
    auto seen = real_samples(loader, accelerator);
    std::ranges::sort(seen);
    EXPECT_THAT(seen, ElementsAreArray(integers_below(16)));
  });
}

TEST_F(DataOfRanks, MayDifferWhereTheComparisonIsOff) {
  run(2, [](const Rank& rank) {
    Accelerator accelerator = sharding_accelerator({.compare_samples = false});
    const auto loader =
        accelerator.prepare(data_loader(shuffled_integers(16, rank.rank), {.batch_size = 2}));
    EXPECT_EQ(batches_of(loader).size(), 4u);
  });
}

TEST_F(DataOfRanks, MayDifferWhereRankZeroReadsForAll) {
  run(2, [](const Rank& rank) {
    Accelerator accelerator = dispatching();
    const auto loader =
        accelerator.prepare(data_loader(shuffled_integers(16, rank.rank), {.batch_size = 2}));
    EXPECT_THAT(real_samples(loader, accelerator), ElementsAreArray(shuffled_integers(16, 0)));
  });
}

TEST_F(DataOfRanks, ThatDrawFromTorchAreLeftAloneAndSoAreItsGenerators) {
  spawn(
      2,
      [](const Rank& rank) {
        torch::manual_seed(rank.rank);
        (void)torch::randn({3});  // half a pair of normal numbers is kept for later
        const at::Tensor expected = [&] {
          auto copy = at::globalContext().defaultGenerator(at::kCPU).clone();
          return torch::randn({5}, copy);
        }();
        Accelerator accelerator = sharding_accelerator();
        const ChangingIntegers noisy{[] { return torch::randint(1000000, {1}).item<int64_t>(); }};
        const auto loader = accelerator.prepare(data_loader(noisy, {.batch_size = 2}));
        EXPECT_TRUE(torch::randn({5}).equal(expected));
      },
      talking());
  for (const int rank : {0, 1}) EXPECT_EQ(exit_code_of(rank), 0);
  EXPECT_THAT(output_of(0), HasSubstr(std::string("info: ") + kNotChecked +
                                      ": sample 0 differs each time it is read (rank 0)"));
  EXPECT_THAT(output_of(1), Not(HasSubstr(kNotChecked)));
}

// Two readings of eight samples see no change on rank 0, and some on rank 1.
TEST_F(DataOfRanks, ThatChangeNowAndThenAreNotTakenForOthers) {
  spawn(
      2,
      [](const Rank& rank) {
        Accelerator accelerator = sharding_accelerator();
        const auto rarely = [readings = std::make_shared<int>(0), own = rank.rank]() -> int64_t {
          // The first sample of rank 1 is changed in both of its readings.
          const int reading = (*readings)++;
          return own == 1 && (reading < 2 || reading == 20) ? 1 : 0;
        };
        const auto loader =
            accelerator.prepare(data_loader(ChangingIntegers{rarely}, {.batch_size = 2}));
        EXPECT_EQ(loader.size(), 4);
      },
      talking());
  for (const int rank : {0, 1}) EXPECT_EQ(exit_code_of(rank), 0);
  EXPECT_THAT(output_of(0), HasSubstr("sample 0 differs each time it is read (rank 1)"));
}

TEST_F(DataOfRanks, ThatCannotBeReadAreLeftToTheLoop) {
  run(2, [](const Rank& rank) {
    Accelerator accelerator = sharding_accelerator();
    const ChangingIntegers broken{[&]() -> int64_t {
      if (rank.rank == 1) throw std::runtime_error("no such file");
      return 0;
    }};
    const auto loader = accelerator.prepare(data_loader(broken, {.batch_size = 2}));
    if (rank.rank == 0) {
      (void)loader.begin();
    } else {
      EXPECT_THAT(thrown_by<DataError>([&] { (void)loader.begin(); }), HasSubstr("no such file"));
    }
  });
}

TEST_F(DataOfRanks, AreNotReadWhereTheyComeAsAStream) {
  run(2, [](const Rank&) {
    Accelerator accelerator = sharding_accelerator();
    const auto reads = std::make_shared<int>(0);
    const auto loader = accelerator.prepare(
        data_loader(stream([reads](int64_t) {
                      return [reads, next = int64_t{0}]() mutable -> std::optional<int64_t> {
                        ++*reads;
                        return next < 8 ? std::optional(next++) : std::nullopt;
                      };
                    }),
                    {.batch_size = 2}));
    EXPECT_EQ(*reads, 0);
    EXPECT_THAT(real_samples(loader, accelerator), ElementsAreArray(integers_below(8)));
  });
}

}  // namespace
}  // namespace accelerate::test
