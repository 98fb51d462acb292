// Which tensors and values the collectives take, and what they say to those that they do not take:
// the same on all ranks, and the group goes on.
#include "multiproc/group.h"

namespace accelerate::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Of the types that neither Gloo nor, in part, NCCL knows.
const std::vector<at::ScalarType> kTypesThatTravelAsBytes = {
    at::kShort,        at::kUInt16,        at::kUInt32,        at::kUInt64,
    at::kComplexFloat, at::kComplexDouble, at::kFloat8_e4m3fn, at::kFloat8_e5m2};

// 2 rows of 3, different on each rank.
at::Tensor typed_value(int rank, at::ScalarType dtype) {
  at::Tensor values =
      (torch::arange(6, test_device()).reshape({2, 3}) + 8 * (rank + 1)).to(at::kFloat);
  if (at::isComplexType(dtype)) return torch::complex(values, -values).to(dtype);
  return values.to(dtype);
}

// Equal in dtype, shape and every byte: not all of these types can be compared.
testing::AssertionResult same_bytes(const at::Tensor& actual, const at::Tensor& expected) {
  if (actual.scalar_type() != expected.scalar_type() || actual.sizes() != expected.sizes()) {
    return testing::AssertionFailure() << "got " << actual.toString() << actual.sizes()
                                       << ", expected " << expected.toString() << expected.sizes();
  }
  const auto bytes = [](const at::Tensor& tensor) {
    return tensor.resolve_conj().contiguous().view({-1}).view(at::kByte);
  };
  return same(bytes(actual), bytes(expected));
}

struct CommTypes : Ranks {};

TEST_F(CommTypes, EveryTypeCanBeMoved) {
  run(3, [](const Rank& rank) {
    Group group;
    for (const auto dtype : kTypesThatTravelAsBytes) {
      SCOPED_TRACE(c10::toString(dtype));
      at::Tensor tensor = typed_value(rank.rank, dtype);
      group.comm.broadcast(tensor, 1);
      EXPECT_TRUE(same_bytes(tensor, typed_value(1, dtype)));

      const auto parts = group.comm.all_gather(typed_value(rank.rank, dtype));
      for (int r = 0; r < 3; ++r) EXPECT_TRUE(same_bytes(parts[r], typed_value(r, dtype)));

      const auto ragged =
          group.comm.all_gather_ragged(typed_value(0, dtype).narrow(0, 0, rank.rank % 2));
      for (int r = 0; r < 3; ++r) {
        EXPECT_TRUE(same_bytes(ragged[r], typed_value(0, dtype).narrow(0, 0, r % 2)));
      }

      std::vector<at::Tensor> inputs;
      if (rank.rank == 2)
        inputs = {typed_value(5, dtype), typed_value(6, dtype), typed_value(7, dtype)};
      at::Tensor output = typed_value(0, dtype);
      group.comm.scatter(output, inputs, 2);
      EXPECT_TRUE(same_bytes(output, typed_value(5 + rank.rank, dtype)));
    }
  });
}

TEST_F(CommTypes, ScalarsStridedAndConjugatedTensorsOfSuchTypesAreMovedToo) {
  run(2, [](const Rank& rank) {
    Group group;
    const auto scalars = group.comm.all_gather(torch::tensor(rank.rank, at::kShort));
    for (int r = 0; r < 2; ++r) EXPECT_TRUE(same(scalars[r], torch::tensor(r, at::kShort)));

    at::Tensor storage = typed_value(rank.rank, at::kShort);
    at::Tensor column = storage.select(1, 2);
    group.comm.broadcast(column, 1);
    at::Tensor expected = typed_value(rank.rank, at::kShort);
    expected.select(1, 2).copy_(typed_value(1, at::kShort).select(1, 2));
    EXPECT_TRUE(same(storage, expected));

    at::Tensor conjugated = typed_value(rank.rank, at::kComplexFloat).conj();
    group.comm.broadcast(conjugated, 1);
    EXPECT_TRUE(
        same(conjugated.resolve_conj(), typed_value(1, at::kComplexFloat).conj().resolve_conj()));
  });
}

TEST_F(CommTypes, SumAndMaximumOfBoolsAreOrAndTheMinimumIsAnd) {
  run(3, [](const Rank& rank) {
    Group group;
    const auto reduced = [&](ReduceOp op) {
      at::Tensor tensor = torch::tensor({true, rank.rank > 0, false}, test_device());
      group.comm.all_reduce(tensor, op);
      return tensor;
    };
    EXPECT_TRUE(same(reduced(ReduceOp::kSum), torch::tensor({true, true, false})));
    EXPECT_TRUE(same(reduced(ReduceOp::kMax), torch::tensor({true, true, false})));
    EXPECT_TRUE(same(reduced(ReduceOp::kMin), torch::tensor({true, false, false})));
    at::Tensor sum = torch::tensor({true, true, true}, test_device());
    group.comm.all_reduce(sum);
    EXPECT_TRUE(same(sum.view(at::kByte), torch::ones({3}, at::kByte)));  // no 3 in a bool
    EXPECT_TRUE(
        same(group.comm.reduce_scatter(torch::tensor({true, rank.rank == 1, false}, test_device())),
             torch::tensor({rank.rank < 2})));
  });
}

TEST_F(CommTypes, ReductionsOfOtherTypesAreRefusedByNameAndTheGroupGoesOn) {
  run(2, [](const Rank& rank) {
    Group group;
    for (const auto dtype : kTypesThatTravelAsBytes) {
      at::Tensor tensor = typed_value(rank.rank, dtype);
      EXPECT_THAT(
          group_usage_error([&] { group.comm.all_reduce(tensor); }),
          AllOf(HasSubstr(c10::toString(dtype)), HasSubstr("all_reduce"), HasSubstr("convert")));
      EXPECT_THAT(group_usage_error([&] { (void)group.comm.reduce_scatter(tensor); }),
                  AllOf(HasSubstr(c10::toString(dtype)), HasSubstr("reduce_scatter")));
      EXPECT_TRUE(same_bytes(tensor, typed_value(rank.rank, dtype)));
    }
    at::Tensor fine = torch::ones({2});
    group.comm.all_reduce(fine);
    EXPECT_TRUE(same(fine, torch::full({2}, 2.0)));
  });
}

// A meta tensor stands for all devices that the group was not opened for, such as CUDA in a group
// of CPUs.
TEST_F(CommTypes, TensorsOnADeviceOfNoBackendAreRefusedByNameAndTheGroupGoesOn) {
  run(2, [](const Rank&) {
    Group group;
    at::Tensor elsewhere = torch::empty({2, 2}, at::kMeta);
    const auto names_it = AllOf(HasSubstr("meta"), HasSubstr("cpu"));
    EXPECT_THAT(group_usage_error([&] { group.comm.all_reduce(elsewhere); }), names_it);
    EXPECT_THAT(group_usage_error([&] { group.comm.broadcast(elsewhere); }), names_it);
    EXPECT_THAT(group_usage_error([&] { (void)group.comm.all_gather(elsewhere); }), names_it);
    EXPECT_THAT(group_usage_error([&] { (void)group.comm.all_gather_ragged(elsewhere); }),
                names_it);
    EXPECT_THAT(group_usage_error([&] { (void)group.comm.reduce_scatter(elsewhere); }), names_it);
    group.comm.barrier();
  });
}

TEST_F(CommTypes, CheckedCollectivesCompareEmptyTensorsToo) {
  run(2, [](const Rank& rank) {
    ProcessGroupOptions options = patient();
    options.check_collectives = true;
    Group group(options);
    const auto differ = AllOf(HasSubstr("rank 0"), HasSubstr("rank 1"), HasSubstr("[0, 3]"));
    at::Tensor tensor = torch::ones({rank.rank, 3}, test_device());
    EXPECT_THAT(group_usage_error([&] { group.comm.all_reduce(tensor); }), differ);
    EXPECT_THAT(group_usage_error([&] { group.comm.broadcast(tensor); }), differ);
    EXPECT_THAT(group_usage_error([&] { (void)group.comm.all_gather(tensor); }), differ);
    EXPECT_THAT(group_usage_error([&] {
                  (void)group.comm.reduce_scatter(torch::ones({2 * rank.rank, 3}));
                }),
                differ);
    at::Tensor empty = torch::empty({0, 3});
    group.comm.all_reduce(empty);
    EXPECT_EQ(group.comm.all_gather(empty).size(), 2U);
    group.comm.barrier();
  });
}

TEST_F(CommTypes, WhatIsWrongWithAScatterIsToldToAllRanksAndTheGroupGoesOn) {
  run(3, [](const Rank& rank) {
    Group group;
    at::Tensor output = torch::zeros({2}, test_device());
    const auto scatter = [&](const std::vector<at::Tensor>& on_root) {
      return group_usage_error([&] {
        group.comm.scatter(output, rank.rank == 1 ? on_root : std::vector<at::Tensor>{}, 1);
      });
    };
    const at::Tensor part = torch::ones({2}, test_device());
    EXPECT_THAT(scatter({part}), AllOf(HasSubstr("rank 1"), HasSubstr("1 inputs for 3 ranks")));
    EXPECT_THAT(scatter({part, part, torch::ones({3})}),
                AllOf(HasSubstr("rank 1"), HasSubstr("shape")));
    EXPECT_THAT(scatter({part, at::Tensor(), part}),
                AllOf(HasSubstr("rank 1"), HasSubstr("undefined")));

    at::Tensor own = rank.rank == 2 ? at::Tensor() : output;
    EXPECT_THAT(group_usage_error([&] {
                  group.comm.scatter(own, {part, part, part}, 1);
                }),
                AllOf(HasSubstr("rank 2"), HasSubstr("undefined")));

    std::vector<at::Tensor> inputs;
    if (rank.rank == 1) inputs = {part, part + 1, part + 2};
    group.comm.scatter(output, inputs, 1);
    EXPECT_TRUE(same(output, torch::full({2}, rank.rank + 1.0)));
  });
}

TEST_F(CommTypes, AnObjectThatCannotBeSentIsRefusedOnAllRanksAndTheGroupGoesOn) {
  run(3, [](const Rank& rank) {
    Group group;
    const auto object_of = [&](int bad_rank) {
      return rank.rank == bad_rank
                 ? c10::IValue::make_capsule(c10::make_intrusive<torch::CustomClassHolder>())
                 : c10::IValue(rank.rank);
    };
    EXPECT_THAT(group_usage_error([&] { (void)group.comm.broadcast_object(object_of(1), 1); }),
                AllOf(HasSubstr("rank 1"), HasSubstr("cannot be sent")));
    EXPECT_THAT(group_usage_error([&] { (void)group.comm.all_gather_object(object_of(2)); }),
                AllOf(HasSubstr("rank 2"), HasSubstr("cannot be sent")));
    // Only the root's object is sent.
    EXPECT_EQ(group.comm.broadcast_object(object_of(2), 0).toInt(), 0);
    const auto objects = group.comm.all_gather_object(object_of(-1));
    for (int r = 0; r < 3; ++r) EXPECT_EQ(objects[r].toInt(), r);
  });
}

}  // namespace
}  // namespace accelerate::test
