// Rank 0 reads for all ranks: what it cannot read is known to all, and nobody waits.
#include <thread>

#include "multiproc/loading.h"

namespace accelerate::test {
namespace {

using testing::AllOf;
using testing::ElementsAreArray;
using testing::HasSubstr;

struct DispatchFailures : Ranks {
  // The error of the pass on every rank; the ranks must be able to go on together.
  template <class MakeLoader>
  void expect_data_error(int world_size, MakeLoader make, const std::vector<std::string>& says) {
    run(world_size, [&](const Rank& rank) {
      Accelerator accelerator = dispatching();
      const auto loader = accelerator.prepare(make());
      const std::string error = thrown_by<DataError>([&] {
        for (auto& batch : loader) (void)batch;
      });
      EXPECT_THAT(error, HasSubstr("[rank " + std::to_string(rank.rank) + " of " +
                                   std::to_string(rank.world_size) + "]"));
      for (const std::string& text : says) EXPECT_THAT(error, HasSubstr(text));
      if (rank.rank != 0) {
        EXPECT_THAT(error, HasSubstr("rank 0, which reads for all ranks"));
      }
      const auto sound = accelerator.prepare(data_loader(Integers{6}, {.batch_size = 1}));
      EXPECT_THAT(real_samples(sound, accelerator), ElementsAreArray(integers_below(6)));
    });
  }
};

struct Torn {
  int64_t size() const { return 12; }
  int64_t get(size_t index) const {
    if (index == 7) throw std::runtime_error("disk gone");
    return static_cast<int64_t>(index);
  }
};

TEST_F(DispatchFailures, AnExceptionOfTheDatasetNamesTheSampleOnAllRanks) {
  expect_data_error(3, [] { return data_loader(Torn{}, {.batch_size = 1}); },
                    {"sample 7", "disk gone"});
}

TEST_F(DispatchFailures, SoDoesOneInAWorker) {
  expect_data_error(2, [] { return data_loader(Torn{}, {.batch_size = 2, .num_workers = 3}); },
                    {"sample 7", "disk gone"});
}

TEST_F(DispatchFailures, SoDoesOneOfAStream) {
  const auto torn = [] {
    return data_loader(stream([](int64_t) {
                         return [at = 0]() mutable -> std::optional<int> {
                           if (at == 5) throw std::runtime_error("line torn");
                           return at++;
                         };
                       }),
                       {.batch_size = 1});
  };
  expect_data_error(2, torn, {"sample 5", "line torn"});
}

TEST_F(DispatchFailures, AThingThatIsNoExceptionIsToldToo) {
  struct Throwing {
    int64_t size() const { return 4; }
    int64_t get(size_t) const { throw 5; }
  };
  expect_data_error(2, [] { return data_loader(Throwing{}, {.batch_size = 1}); }, {"sample 0"});
}

TEST_F(DispatchFailures, AConstantInTheBatchIsNamed) {
  struct WithConstant {
    at::Tensor ids{};
    double temperature = 1;
    ACCELERATE_FIELDS(ids, temperature)
  };
  const auto make = [] {
    return data_loader(Integers{8}, {.batch_size = 2}, [](std::vector<int64_t>&& samples) {
      return WithConstant{.ids = torch::tensor(samples, at::kLong)};
    });
  };
  expect_data_error(2, make, {"temperature"});
}

TEST_F(DispatchFailures, ASamplerThatBreaksItsWordIsToldWhenThePassBegins) {
  const auto make = [] {
    return data_loader(Integers{8},
                       {.batch_size = 2, .sampler = sampler_of(8, [](uint64_t, int64_t) {
                                           return std::vector<int64_t>{1, 2};
                                         })});
  };
  expect_data_error(2, make, {"2 indices"});
}

TEST_F(DispatchFailures, ASliceFunctionThatThrowsIsToldToAll) {
  run(2, [](const Rank&) {
    Accelerator accelerator = dispatching();
    auto whole = data_loader(Integers{8}, {.batch_size = 2});
    whole.slice_fn_for_dispatch(
        [](const UnlabelledBatch&, const DispatchSlice&) -> UnlabelledBatch {
          throw std::invalid_argument("cannot be cut");
        });
    const auto loader = accelerator.prepare(whole);
    EXPECT_THROW(loader.begin(), std::exception);
    accelerator.wait_for_everyone();
  });
}

struct Growing {
  std::shared_ptr<int64_t> n = std::make_shared<int64_t>(8);
  int64_t size() const { return *n; }
  int64_t get(size_t index) const { return static_cast<int64_t>(index); }
};

TEST_F(DispatchFailures, ADatasetThatGrewIsAnErrorOnAllRanksWhereverItGrew) {
  run(2, [](const Rank& rank) {
    for (const bool dispatch : {true, false}) {
      Accelerator accelerator = sharding_accelerator({.dispatch_batches = dispatch});
      Growing data;
      const auto loader = accelerator.prepare(data_loader(data, {.batch_size = 2}));
      EXPECT_EQ(batches_of(loader).size(), 2u);
      // Who reads for all has the only dataset that counts.
      if (rank.rank == 0 || !dispatch) *data.n = 9;
      EXPECT_THAT(thrown_by<DataError>([&] { loader.begin(); }),
                  AllOf(HasSubstr("8 samples"), HasSubstr("9")));
      accelerator.wait_for_everyone();
    }
  });
}

TEST_F(DispatchFailures, ADatasetThatGrewOnARankThatDoesNotReadDoesNoHarm) {
  run(2, [](const Rank& rank) {
    Accelerator accelerator = dispatching();
    Growing data;
    const auto loader = accelerator.prepare(data_loader(data, {.batch_size = 2}));
    if (rank.rank == 1) *data.n = 9;
    EXPECT_THAT(real_samples(loader, accelerator), ElementsAreArray(integers_below(8)));
  });
}

TEST_F(DispatchFailures, BatchesThatCannotBeSentAreRefusedWhenTheLoaderIsPrepared) {
  struct Opaque {
    std::vector<int64_t> samples{};
  };
  run(2, [](const Rank&) {
    const auto opaque = data_loader(Integers{8}, {.batch_size = 2},
                                    [](std::vector<int64_t>&& samples) { return Opaque{samples}; });
    Accelerator reading = dispatching();
    EXPECT_THAT(thrown_by<UsageError>([&] { (void)reading.prepare(opaque); }),
                AllOf(HasSubstr("Opaque"), HasSubstr("ACCELERATE_FIELDS")));
    Accelerator sharing = sharding_accelerator();
    for (const auto& batch : sharing.prepare(opaque)) EXPECT_EQ(batch.samples.size(), 2u);
  });
}

TEST_F(DispatchFailures, LoadersThatDifferAreRefusedWhenTheyArePrepared) {
  run(3, [](const Rank& rank) {
    const bool odd = rank.rank == 2;
    Accelerator accelerator = sharding_accelerator();
    const auto refused = [&](const auto& loader) {
      return thrown_by<UsageError>([&] { (void)accelerator.prepare(loader); });
    };
    EXPECT_THAT(refused(data_loader(Integers{odd ? 9 : 8}, {.batch_size = 2})),
                AllOf(HasSubstr("rank 2"), HasSubstr("9 samples"), HasSubstr("8 samples")));
    EXPECT_THAT(refused(data_loader(Integers{8}, {.batch_size = odd ? 4 : 2})),
                HasSubstr("batches of 4"));
    EXPECT_THAT(refused(data_loader(Integers{8}, {.batch_size = 2, .shuffle = odd})),
                HasSubstr("shuffled"));
    EXPECT_THAT(refused(data_loader(Integers{8}, {.batch_size = 2, .drop_last = odd})),
                HasSubstr("drop_last"));
    auto ahead = data_loader(Integers{8}, {.batch_size = 2});
    if (odd) ahead.set_epoch(1);
    EXPECT_THAT(refused(ahead), HasSubstr("epoch 1"));
    const auto sound = accelerator.prepare(data_loader(Integers{9}, {.batch_size = 2}));
    EXPECT_THAT(real_samples(sound, accelerator), ElementsAreArray(integers_below(9)));
  });
}

// Rank 0 is elsewhere while the others want its batches.
TEST_F(DispatchFailures, RanksThatWaitForRankZeroSaySo) {
  spawn(2, [](const Rank& rank) {
    Accelerator accelerator = dispatching();
    const auto loader = accelerator.prepare(data_loader(Integers{6}, {.batch_size = 1}));
    if (rank.rank == 0) std::this_thread::sleep_for(std::chrono::seconds(12));
    EXPECT_THAT(real_samples(loader, accelerator), ElementsAreArray(integers_below(6)));
  });
  wait_all();
  EXPECT_THAT(output_of(1), HasSubstr("s: loader: next batch from rank 0"));
}

}  // namespace
}  // namespace accelerate::test
