// Collectives for which the ranks bring different things.
#include <csignal>
#include <string>

#include "multiproc/comm/comm_failures.h"

namespace accelerate::test {
namespace {

using testing::AnyOf;
using testing::Eq;
using testing::HasSubstr;

struct CommDifferences : Ranks {};

TEST_F(CommDifferences, RaggedGatherOfTensorsThatDoNotFitIsRefusedOnAllRanks) {
  run(3, [](const Rank& rank) {
    Group group;
    EXPECT_THAT(group_usage_error([&] {
                  (void)group.comm.all_gather_ragged(torch::ones({2, rank.rank == 2 ? 5 : 4}));
                }),
                HasSubstr(rank.rank == 2 ? "rank 0" : "rank 2"));
    EXPECT_THAT(group_usage_error([&] {
                  (void)group.comm.all_gather_ragged(
                      torch::ones({2}, rank.rank == 1 ? at::kDouble : at::kFloat));
                }),
                HasSubstr(rank.rank == 1 ? "rank 0" : "rank 1"));
    EXPECT_NE(group_usage_error([&] {
                (void)group.comm.all_gather_ragged(rank.rank == 1 ? torch::ones({2, 2})
                                                                  : torch::ones({2}));
              }),
              "");
    group.comm.barrier();
  });
}

// With check_collectives every difference is found before anything is sent.
TEST_F(CommDifferences, CheckedCollectivesRefuseADifferenceOnAllRanksAndNameIt) {
  run(3, [](const Rank& rank) {
    ProcessGroupOptions options = patient();
    options.check_collectives = true;
    Group group(options);
    at::Tensor shape = torch::ones({2, rank.rank == 1 ? 3 : 2}, test_device());
    EXPECT_THAT(group_usage_error([&] { group.comm.all_reduce(shape); }), HasSubstr("rank 1"));
    at::Tensor dtype = torch::ones({2}, rank.rank == 2 ? at::kLong : at::kInt);
    EXPECT_THAT(group_usage_error([&] { group.comm.all_reduce(dtype); }), HasSubstr("rank 2"));
    at::Tensor fine = torch::ones({2}, test_device());
    EXPECT_NE(group_usage_error([&] {
                group.comm.all_reduce(fine, rank.rank == 0 ? ReduceOp::kSum : ReduceOp::kMax);
              }),
              "");
    EXPECT_NE(group_usage_error([&] {
                if (rank.rank == 0) {
                  group.comm.barrier();
                } else {
                  group.comm.all_reduce(fine);
                }
              }),
              "");
    EXPECT_NE(group_usage_error([&] { group.comm.broadcast(fine, rank.rank); }), "");
    group.comm.all_reduce(fine);
    EXPECT_TRUE(same(fine, torch::full({2}, 3.0)));
  });
}

// Unchecked, a difference may be found late, or by Gloo, which aborts the process; but it never
// hangs and never passes.
TEST_F(CommDifferences, UncheckedCollectivesOfDifferentSizesEndInAnError) {
  spawn(2, [](const Rank& rank) {
    Group group(with_timeout(kShort));
    at::Tensor tensor = torch::ones({rank.rank == 1 ? 3 : 200'000}, test_device());
    group.comm.all_reduce(tensor);
    group.comm.barrier();
  });
  for (int rank : {0, 1}) {
    EXPECT_THAT(exit_code_of(rank),
                AnyOf(Eq(kExitCommError), Eq(kExitUsageError), Eq(128 + SIGABRT)));
  }
}

}  // namespace
}  // namespace accelerate::test
