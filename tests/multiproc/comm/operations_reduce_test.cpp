// reduce(), broadcast(), padding and conversion of nested values.
#include "multiproc/comm/operations_values.h"

namespace accelerate::test {
namespace {

struct Sums {
  at::Tensor loss{};
  std::map<std::string, at::Tensor> counts{};
  double accuracy = 0;
  int32_t steps = 0;
  uint64_t tokens = 0;
  bool any = false;
  std::vector<float> losses{};
  ACCELERATE_FIELDS(loss, counts, accuracy, steps, tokens, any, losses)
};

Sums sums_of(double factor, int64_t count, bool any) {
  return {.loss = torch::full({2, 2}, 0.5 * factor),
          .counts = {{"seen", torch::full({3}, count)},
                     {"many", torch::full({400'000}, static_cast<double>(count), at::kDouble)},
                     {"right", torch::full({}, 2 * count)},
                     {"scale", torch::full({}, factor, at::kFloat)}},
          .accuracy = 0.25 * factor,
          .steps = static_cast<int32_t>(count),
          .tokens = static_cast<uint64_t>(count) << 40U,
          .any = any,
          .losses = {static_cast<float>(factor), static_cast<float>(-factor)}};
}

// n (n + 1) / 2, the sum of 1 .. n.
int64_t triangle(int n) { return n * (n + 1) / 2; }

using Reduce = OperationsOn;
INSTANTIATE_TEST_SUITE_P(Ranks, Reduce, testing::Range(1, 5));

TEST_P(Reduce, SumsTensorsAndNumbersOfAValue) {
  run_ranks([](const Rank& rank) {
    Group group;
    const int r = rank.rank;
    const int64_t all = triangle(rank.world_size);
    const Sums own = sums_of(r + 1, r + 1, r == rank.world_size - 1);
    expect_same(reduce(group.comm, own), sums_of(static_cast<double>(all), all, true));
    expect_same(reduce(group.comm, own, "sum"), sums_of(static_cast<double>(all), all, true));
    expect_same(own, sums_of(r + 1, r + 1, r == rank.world_size - 1));
  });
}

TEST_P(Reduce, TakesTheLargestAndTheSmallest) {
  run_ranks([](const Rank& rank) {
    Group group;
    const Sums own = sums_of(rank.rank + 1, rank.rank + 1, rank.rank == 0);
    Sums largest = sums_of(rank.world_size, rank.world_size, true);
    largest.losses[1] = -1;
    Sums smallest = sums_of(1, 1, rank.world_size == 1);
    smallest.losses[1] = static_cast<float>(-rank.world_size);
    expect_same(reduce(group.comm, own, ReduceOp::kMax), largest);
    expect_same(reduce(group.comm, own, "max"), largest);
    expect_same(reduce(group.comm, own, "min"), smallest);
  });
}

TEST_P(Reduce, TakesTheMeanAndScalesIt) {
  run_ranks([](const Rank& rank) {
    Group group;
    const std::pair<at::Tensor, double> own{torch::full({2}, rank.rank, at::kFloat), rank.rank};
    const double mean = (rank.world_size - 1) / 2.0;
    const auto result = reduce(group.comm, own, "mean", 4);
    EXPECT_TRUE(same(result.first, torch::full({2}, 4 * mean, at::kFloat)));
    EXPECT_EQ(result.second, 4 * mean);
    EXPECT_EQ(own.second, rank.rank);
  });
}

TEST_P(Reduce, ByNoneIsTheValueOfTheRankItself) {
  run_ranks([](const Rank& rank) {
    Group group;
    const std::tuple<at::Tensor, std::string> own{torch::full({2}, rank.rank), "text"};
    const auto result = reduce(group.comm, own, "none");
    EXPECT_TRUE(std::get<0>(result).is_same(std::get<0>(own)));
    expect_same(reduce(group.comm, own, Reduction::none(), 3.0), own);
  });
}

// One rank alone shares its memory: see OneRank.
struct OnSeveral : OperationsOn {};
INSTANTIATE_TEST_SUITE_P(Ranks, OnSeveral, testing::Range(2, 5));

TEST_P(OnSeveral, AReducedValueOwnsItsMemoryAndHasNoGradient) {
  run_ranks([](const Rank&) {
    Group group;
    const at::Tensor own = torch::ones({2}, torch::requires_grad());
    at::Tensor result = reduce(group.comm, own);
    EXPECT_FALSE(result.requires_grad());
    result.zero_();
    EXPECT_EQ(own.sum().item<float>(), 2);
  });
}

using Broadcast = OperationsOn;
INSTANTIATE_TEST_SUITE_P(Ranks, Broadcast, testing::Range(1, 5));

TEST_P(Broadcast, GivesAllRanksTheWholeValueOfOne) {
  run_ranks([](const Rank& rank) {
    Group group;
    for (int from = 0; from < rank.world_size; ++from) {
      Everything own = everything(rank.rank, 2);
      // What is not a tensor may have any length elsewhere.
      if (rank.rank != from) own.output.text.resize(5);
      expect_same(broadcast(group.comm, own, from), everything(from, 2));
      const std::tuple<int, std::string, at::Tensor> constants{
          rank.rank, "of " + std::to_string(rank.rank), torch::tensor(rank.rank)};
      expect_same(broadcast(group.comm, constants, from),
                  {from, "of " + std::to_string(from), torch::tensor(from)});
    }
  });
}

TEST_P(OnSeveral, ABroadcastLeavesTheValueAsItWas) {
  run_ranks([](const Rank& rank) {
    Group group;
    const Everything own = everything(rank.rank, 1);
    Everything result = broadcast(group.comm, own);
    for_each_tensor(result, [](at::Tensor& tensor) {
      if (tensor.defined()) tensor.fill_(7);
    });
    expect_same(own, everything(rank.rank, 1));
  });
}

using Pad = OperationsOn;
INSTANTIATE_TEST_SUITE_P(Ranks, Pad, testing::Range(1, 5));

TEST_P(Pad, MakesTensorsAsLongAsTheLongest) {
  run_ranks([](const Rank& rank) {
    Group group;
    const int64_t own = rank.rank + 1;
    const int64_t longest = rank.world_size;
    const at::Tensor tokens = torch::ones({2, own}, at::kLong);
    const std::map<std::string, at::Tensor> value{
        {"tokens", tokens}, {"rows", torch::ones({own})}, {"scalar", torch::tensor(1)}};
    const auto result =
        pad_across_processes(group.comm, value, {.dim = 1, .pad_index = -100, .pad_first = true});
    at::Tensor expected = torch::full({2, longest}, -100);
    expected.narrow(1, longest - own, own).fill_(1);
    EXPECT_TRUE(same(result.at("tokens"), expected));
    EXPECT_TRUE(result.at("rows").is_same(value.at("rows")));  // has no second dimension
    EXPECT_TRUE(result.at("scalar").is_same(value.at("scalar")));

    const auto last = pad_across_processes(group.comm, value, {.dim = -1});
    EXPECT_EQ(last.at("tokens").sizes(), at::IntArrayRef({2, longest}));
    EXPECT_EQ(last.at("rows").sizes(), at::IntArrayRef({longest}));
    EXPECT_EQ(last.at("rows").sum().item<int64_t>(), own);
    EXPECT_EQ(pad_across_processes(group.comm, tokens, {.dim = -3}).size(1), own);
    EXPECT_EQ(pad_across_processes(group.comm, tokens, {.dim = 2}).size(1), own);
  });
}

TEST_P(Pad, KeepsGradientsAndOtherLeaves) {
  run_ranks([](const Rank& rank) {
    Group group;
    const at::Tensor leaf = torch::ones({rank.rank + 1}, torch::requires_grad());
    const std::pair<at::Tensor, std::string> value{leaf, "as it is"};
    const auto result = pad_across_processes(group.comm, value);
    EXPECT_EQ(result.second, "as it is");
    (result.first * 3).sum().backward();
    EXPECT_TRUE(same(leaf.grad(), torch::full({rank.rank + 1}, 3.F)));
  });
}

struct Local : Ranks {};

TEST_F(Local, PaddingOfABatchRepeatsItsLastRow) {
  run(1, [](const Rank&) {
    const std::tuple<at::Tensor, at::Tensor, std::vector<std::string>, std::vector<bool>> input{
        rows_of(0, 3, 2), torch::ones({5}), {"a", "b", "c"}, {false, false, true}};
    const auto [ids, table, text, flags] = pad_input_tensors(input, 3, 4);
    EXPECT_TRUE(same(ids, torch::tensor({0.F, 0.F, 1.F, 1.F, 2.F, 2.F, 2.F, 2.F}).view({4, 2})));
    EXPECT_TRUE(table.is_same(std::get<1>(input)));  // not of the batch
    EXPECT_EQ(text, (std::vector<std::string>{"a", "b", "c", "c"}));
    EXPECT_EQ(flags, (std::vector<bool>{false, false, true, true}));

    const auto columns = pad_input_tensors(rows_of(0, 2, 3), 3, 2, 1);
    EXPECT_EQ(columns.sizes(), at::IntArrayRef({2, 4}));
    const at::Tensor fitting = rows_of(0, 4);
    EXPECT_TRUE(pad_input_tensors(fitting, 4, 2).is_same(fitting));
    EXPECT_TRUE(pad_input_tensors(torch::empty({0}), 0, 2).sizes().equals({0}));
    EXPECT_THAT(
        group_usage_error([&] { (void)pad_input_tensors(fitting, 4, 0); }, /*of_a_group=*/false),
        testing::HasSubstr("0 processes"));
  });
}

TEST_F(Local, HalfPrecisionBecomesFloatAndOtherTensorsStay) {
  run(1, [](const Rank&) {
    const std::vector<at::Tensor> value{
        torch::ones({2}, at::kHalf), torch::ones({2}, at::kBFloat16), torch::ones({2}, at::kDouble),
        torch::ones({2}, at::kLong), at::Tensor()};
    const auto result = convert_to_fp32(value);
    EXPECT_TRUE(same(result[0], torch::ones({2})));
    EXPECT_TRUE(same(result[1], torch::ones({2})));
    EXPECT_TRUE(result[2].is_same(value[2]));
    EXPECT_TRUE(result[3].is_same(value[3]));
    EXPECT_FALSE(result[4].defined());
    EXPECT_EQ(value[0].scalar_type(), at::kHalf);
  });
}

}  // namespace
}  // namespace accelerate::test
