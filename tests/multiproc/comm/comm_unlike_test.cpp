// What ranks say that wait for each other in different operations or groups.
#include <accelerate/process_control.h>

#include <string>
#include <thread>

#include "comm/groups/activity.h"
#include "multiproc/comm/comm_failures.h"

namespace accelerate::test {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;
using testing::AllOf;
using testing::HasSubstr;

struct CommUnlike : Ranks {};

// The kind of error, for ranks that end with it.
void expect_unlike_operations(const std::string& error, const std::string& others) {
  EXPECT_THAT(error, AllOf(HasSubstr("the ranks wait for each other in different operations: "),
                           HasSubstr(others), HasSubstr("all ranks must make the same calls")));
}

TEST_F(CommUnlike, RanksThatWaitForEachOtherInDifferentOperationsAreToldLongBeforeTheTimeout) {
  spawn(3, [](const Rank& rank) {
    Group group(with_timeout(kTimeout));
    group.comm.barrier();
    if (rank.rank == 1) {
      const comm::Activity activity(group.comm, "save_model");
      (void)group.comm.all_gather(torch::ones({3}, test_device()));
    } else {
      at::Tensor gradients = torch::ones({1 << 10}, test_device());
      group.comm.guard("backward", [&] { group.comm.all_reduce(gradients); });
    }
  });
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(exit_code_of(rank), kExitUsageError);
    expect_unlike_operations(error_of(rank), "rank 1 in save_model (all_gather");
    EXPECT_THAT(error_of(rank), HasSubstr("all_reduce sum Float[1024]"));
  }
  EXPECT_LT(elapsed(), minutes(1));
}

// The exchanges of a rank that waits in without_timeout() are short, unless another rank is not in
// it.
TEST_F(CommUnlike, ARankThatIsDoneWithItsPartIsToldFromOneInAnotherOperation) {
  spawn(2, [](const Rank& rank) {
    Group group(with_timeout(kTimeout));
    if (rank.rank == 0) {
      const comm::Activity activity(group.comm, "save_state");
      without_timeout(group.comm, [] {});
    } else {
      (void)group.comm.all_gather(torch::ones({3}, test_device()));
    }
  });
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(exit_code_of(rank), kExitUsageError);
    expect_unlike_operations(error_of(rank), "rank 0 in save_state (all_reduce min Int[2])");
    EXPECT_THAT(error_of(rank), HasSubstr("rank 1 in all_gather Float[3]"));
  }
  EXPECT_LT(elapsed(), minutes(1));
}

// Two ranks call one operation by two names, and wait for the third one.
TEST_F(CommUnlike, RanksInOneOperationUnderTwoNamesAreNotTakenForDifferent) {
  spawn(3, [](const Rank& rank) {
    Group group(with_timeout(kTimeout));
    group.comm.barrier();
    if (rank.rank == 2) std::this_thread::sleep_for(seconds(12));
    const comm::Activity activity(group.comm, "the part of rank " + std::to_string(rank.rank));
    at::Tensor sum = torch::ones({4}, test_device());
    group.comm.all_reduce(sum);
    EXPECT_EQ(sum[0].item<float>(), 3.0F);
  });
  wait_all();
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_THAT(output_of(rank),
                HasSubstr("s: the part of rank " + std::to_string(rank) + " (all_"));
  }
}

TEST_F(CommUnlike, APeerThatNeverComesIsSaidToBeInAnotherGroup) {
  spawn(3, [](const Rank& rank) {
    Group group(with_timeout(rank.rank == 0 ? kShort : kTimeout));  // it is the first to give up
    const auto part = group.comm.split(rank.rank == 0 ? -1 : 0);
    if (rank.rank == 2) {
      rank.wait_for(0, 1);
      return;
    }
    try {
      if (rank.rank == 1) part->barrier();
      group.comm.barrier();
    } catch (const CommError&) {
      rank.reach(1);
      throw;
    }
  });
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(exit_code_of(rank), kExitCommError);
    EXPECT_THAT(error_of(rank),
                HasSubstr("rank 1 did not arrive, its last was #1 split Long[3] (finished), "
                          "and it is in #2 barrier among ranks 1 and 2"));
  }
  EXPECT_EQ(exit_code_of(2), kExitPassed);
}

}  // namespace
}  // namespace accelerate::test
