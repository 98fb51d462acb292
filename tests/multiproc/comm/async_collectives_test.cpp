// Collectives that are begun and waited for later.
#include <accelerate/work.h>

#include <csignal>
#include <string>
#include <utility>
#include <vector>

#include "multiproc/group.h"

namespace accelerate::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct AsyncCollectives : Ranks {};

TEST_F(AsyncCollectives, SeveralAreUnderWayAndAreWaitedForInAnyOrder) {
  run(3, [](const Rank& rank) {
    Group group;
    const auto own = static_cast<float>(rank.rank + 1);
    at::Tensor sum = torch::full({5}, own, test_device());
    at::Tensor mean = torch::full({2, 2}, own, test_device());
    at::Tensor sent = torch::full({3}, own, test_device());
    Work summing = group.comm.all_reduce_async(sum);
    Work averaging = group.comm.all_reduce_async(mean, ReduceOp::kMean);
    Work sending = group.comm.broadcast_async(sent, 2);
    sending.wait();
    EXPECT_TRUE(same(sent, torch::full({3}, 3.0F)));
    averaging.wait();
    EXPECT_TRUE(same(mean, torch::full({2, 2}, 2.0F)));
    summing.wait();
    EXPECT_TRUE(same(sum, torch::full({5}, 6.0F)));
    EXPECT_TRUE(summing.done());
    summing.wait();  // again: nothing happens
    EXPECT_TRUE(same(sum, torch::full({5}, 6.0F)));
    group.comm.barrier();
  });
}

TEST_F(AsyncCollectives, AMeanIsThatOfTheBlockingCallToTheBit) {
  run(3, [](const Rank& rank) {
    Group group;
    torch::manual_seed(17 + rank.rank);
    const at::Tensor own = torch::randn({1000}).to(test_device());
    at::Tensor blocking = own.clone();
    at::Tensor begun = own.clone();
    group.comm.all_reduce(blocking, ReduceOp::kMean);
    group.comm.all_reduce_async(begun, ReduceOp::kMean).wait();
    EXPECT_TRUE(same(begun, blocking));
  });
}

TEST_F(AsyncCollectives, TensorsThatAreNotContiguousGetTheirResultsInWait) {
  run(2, [](const Rank& rank) {
    Group group;
    at::Tensor whole = torch::arange(6, test_device()).view({2, 3}) + 10 * rank.rank;
    at::Tensor turned = whole.t();
    group.comm.all_reduce_async(turned).wait();
    EXPECT_TRUE(same(whole, 2 * torch::arange(6).view({2, 3}) + 10));
    at::Tensor column = whole.select(1, 1);
    column.fill_(rank.rank);
    group.comm.broadcast_async(column, 1).wait();
    EXPECT_TRUE(same(whole.select(1, 1), torch::ones({2}, at::kLong)));
  });
}

TEST_F(AsyncCollectives, AllGatherFillsTheOutputInRankOrder) {
  run(3, [](const Rank& rank) {
    Group group;
    const auto on_device = at::TensorOptions().device(test_device());
    at::Tensor numbers = torch::empty({3, 2}, on_device.dtype(at::kLong));
    at::Tensor flags = torch::empty({3}, on_device.dtype(at::kBool));
    Work gathering = group.comm.all_gather_into_async(
        numbers, torch::full({2}, rank.rank, on_device.dtype(at::kLong)));
    Work marking = group.comm.all_gather_into_async(
        flags, torch::full({1}, rank.rank == 1, on_device.dtype(at::kBool)));
    marking.wait();
    gathering.wait();
    EXPECT_TRUE(same(numbers, torch::tensor({0, 0, 1, 1, 2, 2}, at::kLong).view({3, 2})));
    EXPECT_TRUE(same(flags, torch::tensor({false, true, false})));
  });
}

TEST_F(AsyncCollectives, ReduceScatterFillsTheOutputWithThePartOfTheRank) {
  run(2, [](const Rank& rank) {
    Group group;
    const at::Tensor input = (torch::arange(4, test_device()) + 10 * rank.rank).to(at::kFloat);
    at::Tensor sum = torch::empty({2}, input.options());
    at::Tensor mean = torch::empty({2, 1}, input.options());
    Work summing = group.comm.reduce_scatter_into_async(sum, input);
    Work averaging = group.comm.reduce_scatter_into_async(mean, input, ReduceOp::kMean);
    averaging.wait();
    summing.wait();
    const at::Tensor expected =
        (rank.rank == 0 ? torch::tensor({10, 12}) : torch::tensor({14, 16})).to(at::kFloat);
    EXPECT_TRUE(same(sum, expected));
    EXPECT_TRUE(same(mean, (expected / 2).view({2, 1})));
  });
}

TEST_F(AsyncCollectives, AnOutputThatCannotTakeTheResultIsRefusedBeforeAnythingIsSent) {
  run(2, [](const Rank&) {
    Group group;
    const at::Tensor input = torch::ones({4}, test_device());
    const auto refusal_of = [&](at::Tensor output) {
      return group_usage_error([&] { group.comm.all_gather_into_async(output, input).wait(); });
    };
    EXPECT_THAT(
        refusal_of(torch::empty({7}, test_device())),
        AllOf(HasSubstr("the tensors do not fit: one must have 2 times as many elements as the "
                        "other, the same dtype and device"),
              HasSubstr("at   all_gather_into")));
    EXPECT_THAT(refusal_of(torch::empty({8}, input.options().dtype(at::kLong))),
                HasSubstr("the tensors do not fit"));
    EXPECT_THAT(refusal_of(torch::empty({4, 2}, test_device()).t()),
                HasSubstr("the output is not contiguous"));
    at::Tensor part = torch::empty({3}, test_device());
    EXPECT_THAT(
        group_usage_error([&] { group.comm.reduce_scatter_into_async(part, input).wait(); }),
        AllOf(HasSubstr("the tensors do not fit"), HasSubstr("at   reduce_scatter_into")));
    at::Tensor whole = torch::ones({2}, at::kLong);
    EXPECT_THAT(
        group_usage_error([&] { group.comm.all_reduce_async(whole, ReduceOp::kMean).wait(); }),
        HasSubstr("a mean of Long has no exact result"));
    group.comm.barrier();
  });
}

TEST_F(AsyncCollectives, AHandleThatIsDroppedDisturbsNobody) {
  run(2, [](const Rank& rank) {
    Group group;
    for (int i = 0; i < 100; ++i) {
      at::Tensor forgotten = torch::ones({1000}, test_device());
      const Work dropped = group.comm.all_reduce_async(forgotten, ReduceOp::kMean);
    }
    at::Tensor tensor = torch::full({1}, rank.rank, test_device());
    Work replaced = group.comm.all_reduce_async(tensor);
    replaced = Work();
    EXPECT_TRUE(replaced.done());
    at::Tensor sum = torch::full({1}, rank.rank + 1, test_device());
    group.comm.all_reduce(sum);
    EXPECT_TRUE(same(sum, torch::full({1}, 3)));
  });
}

TEST_F(AsyncCollectives, OneRankHasItsResultsAtOnce) {
  run(1, [](const Rank&) {
    Group group;
    at::Tensor tensor = torch::arange(3, test_device());
    EXPECT_TRUE(group.comm.all_reduce_async(tensor).done());
    EXPECT_TRUE(group.comm.broadcast_async(tensor).done());
    at::Tensor output = torch::zeros({3}, tensor.options());
    EXPECT_TRUE(group.comm.all_gather_into_async(output, tensor).done());
    EXPECT_TRUE(same(output, torch::arange(3)));
    output.zero_();
    EXPECT_TRUE(group.comm.reduce_scatter_into_async(output, tensor).done());
    EXPECT_TRUE(same(output, torch::arange(3)));
  });
}

TEST_F(AsyncCollectives, AHandleMayOutliveItsCommunicator) {
  run(2, [](const Rank& rank) {
    at::Tensor tensor = torch::full({4}, rank.rank + 1, test_device());
    Work work;
    {
      Group group;
      work = group.comm.all_reduce_async(tensor);
    }
    work.wait();
    EXPECT_TRUE(same(tensor, torch::full({4}, 3)));
  });
}

TEST_F(AsyncCollectives, CallsThatDifferAreFoundWhereTheyBegin) {
  run(2, [](const Rank& rank) {
    ProcessGroupOptions options = patient();
    options.check_collectives = true;
    Group group(options);
    at::Tensor tensor = torch::ones({2 + rank.rank}, test_device());
    EXPECT_THAT(group_usage_error([&] { group.comm.all_reduce_async(tensor).wait(); }),
                HasSubstr("rank 0: all_reduce sum Float[2], rank 1: all_reduce sum Float[3]"));
  });
}

TEST_F(AsyncCollectives, EachThatWaitsForALostPeerNamesItselfAndThePeer) {
  spawn(2, [](const Rank& rank) {
    Group group({.timeout = std::chrono::minutes(10),
                 .rendezvous_timeout = std::chrono::seconds(50),
                 .cuda_backend = CudaBackend::kGloo});  // whose waits block the host
    group.comm.barrier();
    if (rank.rank == 1) {
      rank.reach(1);
      pause();
    }
    at::Tensor one = torch::ones({3}, test_device());
    at::Tensor other = torch::ones({1 << 16}, test_device());
    Work first = group.comm.all_reduce_async(one);
    Work second = group.comm.broadcast_async(other, 1);
    EXPECT_FALSE(first.done());
    rank.reach(1);
    const auto error_of_wait = [](Work& work) -> std::string {
      try {
        work.wait();
      } catch (const CommError& error) {
        return error.what();
      }
      return "nothing";
    };
    const std::string error = error_of_wait(first);
    EXPECT_THAT(error, AllOf(HasSubstr("collective #2 all_reduce sum Float[3] failed: rank 1 did "
                                       "not arrive: its process has ended"),
                             HasSubstr("[rank 0 of 2]")));
    EXPECT_EQ(error_of_wait(first), error);
    EXPECT_THAT(error_of_wait(second),
                AllOf(HasSubstr("collective #3 broadcast from 1"), HasSubstr("rank 1")));
    EXPECT_TRUE(first.done() && second.done());
    EXPECT_THROW(group.comm.all_reduce_async(one).wait(), CommError);
  });
  ASSERT_TRUE(wait_for_stage(0, 1));
  ASSERT_TRUE(wait_for_stage(1, 1));
  kill_rank(1, SIGKILL);
  EXPECT_EQ(exit_code_of(0), kExitPassed);
}

}  // namespace
}  // namespace accelerate::test
