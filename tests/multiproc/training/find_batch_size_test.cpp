// Ranks that agree on a batch size and on states of random number generators.
#include <accelerate/find_batch_size.h>
#include <accelerate/random.h>

#include <stdexcept>

#include "multiproc/group.h"

namespace accelerate::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct FindBatchSizeOnRanks : Ranks {};
struct RngStatesOnRanks : Ranks {};

int64_t run_out_above(int64_t limit, int64_t size) {
  if (size > limit) throw std::runtime_error("CUDA out of memory.");
  return size;
}

TEST_F(FindBatchSizeOnRanks, AllTakeTheSizeThatFitsOnTheTightestRank) {
  run(3, [](const Rank& rank) {
    Group group;
    std::vector<int64_t> tried;
    const int64_t found = find_executable_batch_size(
        [&](int64_t size) {
          tried.push_back(size);
          return run_out_above(rank.rank == 1 ? 12 : 100, size);
        },
        {.starting_batch_size = 16, .communicator = &group.comm});
    EXPECT_EQ(found, 12);
    EXPECT_THAT(tried, ElementsAre(16, 14, 12));
  });
}

TEST_F(FindBatchSizeOnRanks, ARankThatLeavesFreesThoseThatWaitForIt) {
  run(3, [](const Rank& rank) {
    Group group;
    std::vector<int64_t> tried;
    const double sum = find_executable_batch_size(
        [&](int64_t size) {
          tried.push_back(size);
          Communicator inner(group.state, patient());
          at::Tensor values = torch::full({4}, static_cast<double>(size));
          inner.all_reduce(values);
          run_out_above(rank.rank == 2 ? 14 : 100, size);
          inner.all_reduce(values);  // the others wait here for rank 2
          return values[0].item<double>();
        },
        {.starting_batch_size = 16, .communicator = &group.comm});
    EXPECT_EQ(sum, 9 * 14);
    EXPECT_THAT(tried, ElementsAre(16, 14));
  });
}

TEST_F(FindBatchSizeOnRanks, AnErrorOfOneRankEndsTheSearchOnAll) {
  run(3, [](const Rank& rank) {
    Group group;
    const auto attempt = [&] {
      find_executable_batch_size(
          [&](int64_t size) {
            if (rank.rank == 1) throw std::logic_error("a bug");
            run_out_above(rank.rank == 2 ? 3 : 100, size);
          },
          {.starting_batch_size = 16, .communicator = &group.comm});
    };
    if (rank.rank == 1) {
      EXPECT_THROW(attempt(), std::logic_error);
      return;
    }
    try {
      attempt();
      FAIL() << "no error";
    } catch (const CommError& error) {
      EXPECT_EQ(error.message(), "rank 1 failed with batch size 16");
    }
  });
}

TEST_F(FindBatchSizeOnRanks, AllReachZeroTogether) {
  run(2, [](const Rank& rank) {
    Group group;
    EXPECT_THAT(group_usage_error([&] {
                  find_executable_batch_size(
                      [&](int64_t size) { run_out_above(rank.rank == 0 ? 0 : 5, size); },
                      {.starting_batch_size = 2, .communicator = &group.comm});
                }),
                HasSubstr("No executable batch size found, reached zero."));
  });
}

TEST_F(RngStatesOnRanks, EveryRankContinuesWithTheStateOfRankZero) {
  const auto drawn = run_collect(3, [](const Rank& rank) {
    Group group;
    set_seed(100, {.device_specific = true, .rank = rank.rank});
    auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(rank.rank));
    (void)torch::randn({3 + rank.rank});  // also states in the middle of a sequence
    (void)torch::randn({1}, generator);
    synchronize_rng_states(group.comm, {"torch", "generator"}, generator);
    const auto own = torch::rand({2}, at::kDouble);
    const auto handed = torch::rand({2}, generator, at::TensorOptions(at::kDouble));
    const auto all = torch::cat({own, handed});
    return std::vector<double>(all.data_ptr<double>(), all.data_ptr<double>() + 4);
  });
  EXPECT_EQ(drawn[1], drawn[0]);
  EXPECT_EQ(drawn[2], drawn[0]);
  EXPECT_NE(drawn[0][0], drawn[0][2]);
}

TEST_F(RngStatesOnRanks, StatesThatAreNotNamedStay) {
  const auto drawn = run_collect(2, [](const Rank& rank) {
    Group group;
    set_seed(100, {.device_specific = true, .rank = rank.rank});
    auto generator = at::detail::createCPUGenerator(9);
    synchronize_rng_states(group.comm, {RngType::kGenerator}, generator);
    return std::vector<double>{torch::rand({}).item<double>()};
  });
  EXPECT_NE(drawn[1], drawn[0]);
}

TEST_F(RngStatesOnRanks, WhatIsMissingIsNamed) {
  run(1, [](const Rank&) {
    Group group;
    EXPECT_THAT(group_usage_error([&] {
                  synchronize_rng_states(group.comm, {"torch", "generator"});
                }),
                HasSubstr("'generator' is to be synchronised, but none was given"));
    if (group.state.gpu_count() > 0) return;
    EXPECT_THAT(group_usage_error([&] { synchronize_rng_states(group.comm, {"cuda"}); }),
                HasSubstr("there is no GPU whose random state could be synchronised"));
  });
}

}  // namespace
}  // namespace accelerate::test
