// What each collective computes, at several world sizes. Inputs differ on each rank and element.
#include <ATen/record_function.h>

#include <numeric>
#include <thread>

#include "comm/groups/process_group.h"
#include "multiproc/group.h"

namespace accelerate::test {
namespace {

using testing::HasSubstr;

// 3 rows of 4, different on each rank.
at::Tensor mine(int rank, at::ScalarType dtype = at::kFloat) {
  return (torch::arange(12, test_device()).reshape({3, 4}) + 10 * (rank + 1)).to(dtype);
}

struct Collectives : Ranks, testing::WithParamInterface<int> {
  int world_size() const { return GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(WorldSize, Collectives, testing::Values(1, 2, 3, 4));

TEST_P(Collectives, AGroupKnowsItsRankAndSize) {
  run(world_size(), [](const Rank& rank) {
    Group group;
    EXPECT_EQ(group.comm.rank(), rank.rank);
    EXPECT_EQ(group.comm.world_size(), rank.world_size);
  });
}

TEST_P(Collectives, ABarrierIsLeftOnlyWhenAllHaveCome) {
  run(world_size(), [](const Rank& rank) {
    Group group;
    for (int round = 1; round <= 20; ++round) {
      rank.reach(round);
      group.comm.barrier();
      for (int other = 0; other < rank.world_size; ++other) {
        EXPECT_GE(rank.stage_of(other), round) << "rank " << other << " has not come";
      }
    }
  });
}

TEST_P(Collectives, BroadcastOverwritesByTheTensorOfAnyRoot) {
  run(world_size(), [](const Rank& rank) {
    Group group;
    for (int root = 0; root < rank.world_size; ++root) {
      for (const auto dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kLong,
                               at::kInt, at::kByte, at::kBool}) {
        at::Tensor tensor = mine(rank.rank, dtype);
        group.comm.broadcast(tensor, root);
        EXPECT_TRUE(same(tensor, mine(root, dtype)));
      }
    }
  });
}

TEST_P(Collectives, AllReduceCombinesElementByElement) {
  run(world_size(), [](const Rank& rank) {
    Group group;
    const int n = rank.world_size;
    for (const auto dtype :
         {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kLong, at::kInt, at::kByte}) {
      const at::Tensor base = torch::arange(12, test_device()).reshape({3, 4}).to(dtype);
      const auto reduced = [&](ReduceOp op) {
        at::Tensor tensor = mine(rank.rank, dtype);
        group.comm.all_reduce(tensor, op);
        return tensor;
      };
      EXPECT_TRUE(same(reduced(ReduceOp::kSum), base * n + 10 * (n * (n + 1) / 2)));
      EXPECT_TRUE(same(reduced(ReduceOp::kMin), base + 10));
      EXPECT_TRUE(same(reduced(ReduceOp::kMax), base + 10 * n));
      if (at::isFloatingType(dtype)) {
        EXPECT_TRUE(same(reduced(ReduceOp::kMean), base + 5 * (n + 1)));
      }
    }
  });
}

TEST_P(Collectives, EmptyAndZeroDimensionalTensorsAreWelcome) {
  run(world_size(), [](const Rank& rank) {
    Group group;
    at::Tensor scalar = torch::tensor(rank.rank + 1.5, test_device());
    group.comm.all_reduce(scalar);
    const int n = rank.world_size;
    EXPECT_EQ(scalar.item<double>(), n * (n - 1) / 2 + 1.5 * n);
    group.comm.broadcast(scalar, n - 1);
    EXPECT_EQ(scalar.dim(), 0);
    const auto scalars = group.comm.all_gather(torch::tensor(rank.rank, test_device()));
    ASSERT_EQ(scalars.size(), static_cast<size_t>(n));
    for (int r = 0; r < n; ++r) EXPECT_TRUE(same(scalars[r], torch::tensor(r)));

    at::Tensor empty = torch::empty({0, 3}, test_device());
    group.comm.all_reduce(empty);
    group.comm.broadcast(empty);
    for (const at::Tensor& part : group.comm.all_gather(empty)) {
      EXPECT_TRUE(same(part, torch::empty({0, 3})));
    }
    EXPECT_TRUE(same(group.comm.reduce_scatter(empty), torch::empty({0, 3})));
    group.comm.barrier();
  });
}

TEST_P(Collectives, StridedTensorsAreReadAndWrittenInPlace) {
  run(world_size(), [](const Rank& rank) {
    Group group;
    const int n = rank.world_size;
    at::Tensor storage = mine(rank.rank);
    at::Tensor view = storage.t();
    group.comm.all_reduce(view, ReduceOp::kMax);
    EXPECT_TRUE(same(storage, mine(n - 1)));

    storage = mine(rank.rank);
    at::Tensor column = storage.select(1, 2);
    group.comm.broadcast(column, n - 1);
    at::Tensor expected = mine(rank.rank);
    expected.select(1, 2).copy_(mine(n - 1).select(1, 2));
    EXPECT_TRUE(same(storage, expected));

    const auto parts = group.comm.all_gather(mine(rank.rank).t());
    for (int r = 0; r < n; ++r) EXPECT_TRUE(same(parts[r], mine(r).t()));
  });
}

TEST_P(Collectives, AllGatherReturnsTheTensorsInRankOrderAndOwnsThem) {
  run(world_size(), [](const Rank& rank) {
    Group group;
    for (const auto dtype : {at::kFloat, at::kBFloat16, at::kLong, at::kBool}) {
      at::Tensor tensor = mine(rank.rank, dtype);
      const auto parts = group.comm.all_gather(tensor);
      tensor.zero_();
      ASSERT_EQ(parts.size(), static_cast<size_t>(rank.world_size));
      for (int r = 0; r < rank.world_size; ++r) EXPECT_TRUE(same(parts[r], mine(r, dtype)));
    }
  });
}

TEST_P(Collectives, RaggedGatherKeepsEachRanksRowsAlsoNone) {
  run(world_size(), [](const Rank& rank) {
    Group group;
    const auto of = [](int r) {
      return torch::arange(2 * r, test_device()).reshape({r, 2}) + 100 * r;
    };
    const auto parts = group.comm.all_gather_ragged(of(rank.rank));
    ASSERT_EQ(parts.size(), static_cast<size_t>(rank.world_size));
    for (int r = 0; r < rank.world_size; ++r) EXPECT_TRUE(same(parts[r], of(r)));
    for (const at::Tensor& part : group.comm.all_gather_ragged(torch::empty({0}, test_device()))) {
      EXPECT_TRUE(same(part, torch::empty({0})));
    }
  });
}

TEST_P(Collectives, ReduceScatterGivesEachRankItsRowsOfTheSum) {
  run(world_size(), [](const Rank& rank) {
    Group group;
    const int n = rank.world_size;
    const at::Tensor base = torch::arange(4.0 * n, test_device()).reshape({2 * n, 2});
    const auto rows = [&](const at::Tensor& whole) {
      return whole.slice(0, 2 * rank.rank, 2 * rank.rank + 2);
    };
    const at::Tensor input = base * (rank.rank + 1);
    EXPECT_TRUE(same(group.comm.reduce_scatter(input), rows(base * (n * (n + 1) / 2))));
    EXPECT_TRUE(same(group.comm.reduce_scatter(input, ReduceOp::kMax), rows(base * n)));
    EXPECT_TRUE(same(group.comm.reduce_scatter(input, ReduceOp::kMin), rows(base)));
    EXPECT_TRUE(same(group.comm.reduce_scatter(input, ReduceOp::kMean), rows(base * (n + 1) / 2)));
    EXPECT_TRUE(same(input, base * (rank.rank + 1)));
  });
}

TEST_P(Collectives, ScatterFillsEachRanksOutputFromTheRoot) {
  run(world_size(), [](const Rank& rank) {
    Group group;
    for (int root = 0; root < rank.world_size; ++root) {
      std::vector<at::Tensor> inputs;
      if (rank.rank == root) {
        for (int r = 0; r < rank.world_size; ++r) inputs.push_back(mine(r) + 1000 * root);
      }
      at::Tensor output = torch::zeros({3, 4}, test_device());
      group.comm.scatter(output, inputs, root);
      EXPECT_TRUE(same(output, mine(rank.rank) + 1000 * root));
    }
  });
}

TEST_P(Collectives, ObjectsTravelByValue) {
  run(world_size(), [](const Rank& rank) {
    Group group;
    const auto object_of = [](int r) {
      c10::impl::GenericDict dict(c10::StringType::get(), c10::AnyType::get());
      dict.insert("name", "rank " + std::to_string(r));
      dict.insert("loss", 0.5 * r);
      dict.insert("tensor", mine(r));
      return c10::IValue(dict);
    };
    const auto expect_object_of = [](const c10::IValue& value, int r) {
      const auto dict = value.toGenericDict();
      EXPECT_EQ(dict.at("name").toStringRef(), "rank " + std::to_string(r));
      EXPECT_EQ(dict.at("loss").toDouble(), 0.5 * r);
      EXPECT_TRUE(same(dict.at("tensor").toTensor(), mine(r)));
    };
    const int last = rank.world_size - 1;
    expect_object_of(group.comm.broadcast_object(object_of(rank.rank), last), last);
    const auto objects = group.comm.all_gather_object(object_of(rank.rank));
    ASSERT_EQ(objects.size(), static_cast<size_t>(rank.world_size));
    for (int r = 0; r <= last; ++r) expect_object_of(objects[r], r);
  });
}

TEST_P(Collectives, BytesTravelAsTheyAre) {
  run(world_size(), [](const Rank& rank) {
    Group group;
    // Rank 0 has none, the others zero bytes and different lengths.
    const auto bytes_of = [](int r) { return std::string(static_cast<size_t>(3 * r), '\0'); };
    const int last = rank.world_size - 1;
    EXPECT_EQ(group.comm.broadcast_bytes("from " + std::to_string(rank.rank), last),
              "from " + std::to_string(last));
    EXPECT_EQ(group.comm.broadcast_bytes(bytes_of(rank.rank)), "");
    const auto all = group.comm.all_gather_bytes(bytes_of(rank.rank));
    ASSERT_EQ(all.size(), static_cast<size_t>(rank.world_size));
    for (int r = 0; r <= last; ++r) EXPECT_EQ(all[r], bytes_of(r));
  });
}

TEST_P(Collectives, AMillionElementsAreReducedRightToTheLast) {
  run(world_size(), [](const Rank& rank) {
    Group group;
    const int n = rank.world_size;
    at::Tensor tensor = torch::arange(1 << 20, test_device()).to(at::kDouble) * (rank.rank + 1);
    group.comm.all_reduce(tensor);
    EXPECT_TRUE(same(tensor, torch::arange(1 << 20).to(at::kDouble) * (n * (n + 1) / 2)));
  });
}

TEST_P(Collectives, WrongArgumentsAreRefusedOnEveryRankAndTheGroupGoesOn) {
  run(world_size(), [](const Rank& rank) {
    Group group;
    Communicator& comm = group.comm;
    const int n = rank.world_size;
    at::Tensor tensor = mine(rank.rank);
    at::Tensor integers = mine(rank.rank, at::kLong);
    at::Tensor undefined;
    EXPECT_THAT(group_usage_error([&] { comm.broadcast(tensor, n); }), HasSubstr("root"));
    EXPECT_THAT(group_usage_error([&] { comm.broadcast(tensor, -1); }), HasSubstr("root"));
    EXPECT_THAT(group_usage_error([&] { comm.all_reduce(integers, ReduceOp::kMean); }),
                HasSubstr("mean of Long"));
    EXPECT_NE(group_usage_error([&] { comm.all_reduce(undefined); }), "");
    EXPECT_NE(group_usage_error([&] { comm.broadcast(undefined); }), "");
    EXPECT_NE(group_usage_error([&] { (void)comm.all_gather(undefined); }), "");
    EXPECT_NE(group_usage_error([&] { (void)comm.all_gather_ragged(torch::tensor(1)); }), "");
    EXPECT_NE(group_usage_error([&] { (void)comm.reduce_scatter(torch::tensor(1.0)); }), "");
    if (n > 1) {
      EXPECT_THAT(group_usage_error([&] {
                    (void)comm.reduce_scatter(torch::ones({n + 1, 2}));
                  }),
                  HasSubstr(std::to_string(n)));
    }
    EXPECT_NE(group_usage_error([&] { comm.scatter(tensor, {}, n); }), "");
    EXPECT_NE(group_usage_error([&] { (void)comm.broadcast_object(1, n); }), "");
    EXPECT_NE(group_usage_error([&] { (void)comm.broadcast_bytes("", -1); }), "");
    EXPECT_TRUE(same(tensor, mine(rank.rank)));
    comm.all_reduce(tensor, ReduceOp::kMin);
    EXPECT_TRUE(same(tensor, mine(0)));
  });
}

TEST_P(Collectives, SeveralGroupsInOneProcessAreIndependent) {
  run(world_size(), [](const Rank& rank) {
    auto first = std::make_unique<Group>();
    Group second;
    for (int i = 0; i < 3; ++i) {
      at::Tensor a = torch::tensor(1.0, test_device());
      at::Tensor b = torch::tensor(10.0, test_device());
      first->comm.all_reduce(a);
      second.comm.all_reduce(b);
      EXPECT_EQ(a.item<double>(), rank.world_size);
      EXPECT_EQ(b.item<double>(), 10.0 * rank.world_size);
    }
    first.reset();
    second.comm.barrier();
    Group third;
    EXPECT_EQ(third.comm.broadcast_bytes(std::to_string(rank.rank)), "0");
    second.comm.barrier();
  });
}

TEST_P(Collectives, GuardPassesExceptionsOfTheOperationUnchanged) {
  run(world_size(), [](const Rank&) {
    Group group;
    int calls = 0;
    group.comm.guard("backward", [&] { ++calls; });
    EXPECT_EQ(calls, 1);
    EXPECT_THROW(group.comm.guard("backward", [] { throw std::out_of_range("nine"); }),
                 std::out_of_range);
    group.comm.barrier();
  });
}

// The operations of libtorch that `work` calls on this thread.
std::vector<std::string> operations_in(const std::function<void()>& work) {
  static thread_local std::vector<std::string> names;
  names.clear();
  const auto note = [](const at::RecordFunction& called) -> std::unique_ptr<at::ObserverContext> {
    names.emplace_back(called.name());
    return nullptr;
  };
  const at::CallbackHandle handle = at::addThreadLocalCallback(
      at::RecordFunctionCallback(note).scopes({at::RecordScope::FUNCTION}));
  work();
  at::removeCallback(handle);
  return names;
}

// ProcessGroup::barrier() assigns to a tensor that all groups and threads share. Two of them at
// once seldom meet there, so what is looked at is whether it is called at all.
TEST_F(Ranks, BarriersDoNotUseTheTensorThatAllGroupsShare) {
  run(2, [](const Rank&) {
    Group group;
    const auto plain = comm::process_group_of(group.comm);
    EXPECT_THAT(operations_in([&] { plain->barrier()->wait(); }),
                testing::Contains("c10d::barrier"));
    EXPECT_THAT(operations_in([&] { group.comm.barrier(); }),
                testing::Not(testing::Contains("c10d::barrier")));
  });
}

// A save beside the training has a group of its own, on a thread of its own. For
// ThreadSanitizer, which sees what they share.
TEST_F(Ranks, BarriersOfTwoGroupsOnTwoThreadsDoNotMeet) {
  run(2, [](const Rank&) {
    Group one;
    Group other;
    const auto meet_often = [](Communicator& group) {
      for (int i = 0; i < 3000; ++i) group.barrier();
    };
    std::thread beside([&] { meet_often(other.comm); });
    meet_often(one.comm);
    beside.join();
  });
}

}  // namespace
}  // namespace accelerate::test
