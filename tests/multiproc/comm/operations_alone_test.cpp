// Operations on nested values where one rank is all there are: nothing is sent, nothing is copied.
#include <cstdint>
#include <limits>

#include "multiproc/comm/operations_values.h"

namespace accelerate::test {
namespace {

using testing::HasSubstr;

struct OneRank : Ranks {};

// One tensor of each kind that the operations may meet.
struct Mixed {
  at::Tensor rows{};
  at::Tensor trained{};  // has a gradient
  at::Tensor missing{};
  std::vector<double> numbers{};
  ACCELERATE_FIELDS(rows, trained, missing, numbers)
};

Mixed mixed() {
  return {.rows = rows_of(0, 3, 2),
          .trained = torch::ones({2}, torch::requires_grad()),
          .numbers = {1.5, 2.5}};
}

void expect_shared(const Mixed& result, const Mixed& value) {
  EXPECT_TRUE(result.rows.is_alias_of(value.rows));
  EXPECT_TRUE(same(result.rows, value.rows));
  EXPECT_TRUE(result.trained.is_alias_of(value.trained));
  EXPECT_FALSE(result.trained.requires_grad());
  EXPECT_TRUE(value.trained.requires_grad());
  EXPECT_FALSE(result.missing.defined());
  EXPECT_EQ(result.numbers, value.numbers);
}

TEST_F(OneRank, GetsItsOwnValueBack) {
  run(1, [](const Rank&) {
    Group group;
    const Mixed value = mixed();
    expect_shared(gather(group.comm, value), value);
    expect_shared(gather_for_metrics(group.comm, std::nullopt, value), value);
    expect_shared(broadcast(group.comm, value), value);
    for (const char* by : {"sum", "mean", "min", "max"}) {
      expect_shared(reduce(group.comm, value, by), value);
    }
    const at::Tensor lone = torch::ones({2});
    EXPECT_TRUE(gather(group.comm, lone).is_same(lone));
    EXPECT_TRUE(broadcast(group.comm, lone).is_same(lone));
    EXPECT_TRUE(reduce(group.comm, lone, ReduceOp::kMean).is_same(lone));
    EXPECT_EQ(reduce(group.comm, 7), 7);
  });
}

TEST_F(OneRank, GathersATensorWithoutDimensionsAsOneRow) {
  run(1, [](const Rank&) {
    Group group;
    const at::Tensor loss = torch::tensor(0.5, torch::requires_grad());
    const at::Tensor gathered = gather(group.comm, loss);
    EXPECT_TRUE(same(gathered, torch::tensor({0.5F})));
    EXPECT_FALSE(gathered.requires_grad());
    EXPECT_TRUE(same(broadcast(group.comm, loss), torch::tensor(0.5F)));
  });
}

TEST_F(OneRank, DropsTheRowsThatOnlyEvenOutTheBatch) {
  run(1, [](const Rank&) {
    Group group;
    const at::Tensor rows = rows_of(0, 4);
    const BatchInfo batch{.size = 4, .valid = 3};
    EXPECT_TRUE(same(gather_for_metrics(group.comm, batch, rows), rows.narrow(0, 0, 3)));
  });
}

TEST_F(OneRank, GetsMemoryOfItsOwnWhereThereIsAScale) {
  run(1, [](const Rank&) {
    Group group;
    const Mixed value = mixed();
    const Mixed half = reduce(group.comm, value, ReduceOp::kSum, 0.5);
    EXPECT_TRUE(same(half.rows, value.rows / 2));
    EXPECT_TRUE(same(half.trained, torch::full({2}, 0.5)));
    EXPECT_EQ(half.numbers, (std::vector<double>{0.75, 1.25}));
    EXPECT_TRUE(same(value.rows, rows_of(0, 3, 2)));
  });
}

// What works alone must not fail on the first job with two ranks.
TEST_F(OneRank, RefusesWhatSeveralRanksRefuse) {
  run(1, [](const Rank&) {
    Group group;
    const at::Tensor integers = torch::arange(3);
    const at::Tensor sparse = torch::eye(2).to_sparse();
    EXPECT_THAT(group_usage_error([&] { (void)gather(group.comm, 3.0); }),
                HasSubstr("is a lone number"));
    EXPECT_THAT(group_usage_error([&] { (void)gather(group.comm, std::pair(integers, 3.0)); }),
                HasSubstr("is a lone number"));
    EXPECT_THAT(group_usage_error([&] { (void)gather(group.comm, at::Tensor()); }),
                HasSubstr("is an undefined tensor"));
    for (const auto& act : std::vector<std::function<void()>>{
             [&] { (void)gather(group.comm, sparse); },
             [&] { (void)gather_for_metrics(group.comm, std::nullopt, integers, sparse); },
             [&] { (void)broadcast(group.comm, sparse); },
             [&] {
               (void)reduce(group.comm, std::vector{integers, sparse});
             }}) {
      EXPECT_THAT(group_usage_error(act), HasSubstr("is not a dense tensor"));
    }
    EXPECT_THAT(group_usage_error([&] { (void)broadcast(group.comm, integers, 1); }),
                HasSubstr("root 1 is not a rank"));
    EXPECT_THAT(group_usage_error([&] { (void)reduce(group.comm, integers, "mean"); }),
                HasSubstr("whose mean has no exact result"));
    EXPECT_THAT(group_usage_error([&] { (void)reduce(group.comm, 3, "mean"); }),
                HasSubstr("whose mean has no exact result"));
    EXPECT_THAT(group_usage_error([&] { (void)reduce(group.comm, integers, "sum", 0.5); }),
                HasSubstr("cannot be multiplied by a scale"));
    EXPECT_THAT(
        group_usage_error([&] { (void)reduce(group.comm, torch::ones({2}, at::kComplexFloat)); }),
        HasSubstr("can be moved between ranks but not reduced"));
    EXPECT_THAT(group_usage_error([&] { (void)reduce(group.comm, std::string("text")); }),
                HasSubstr("is not a number"));
    EXPECT_THAT(
        group_usage_error([&] { (void)reduce(group.comm, std::numeric_limits<uint64_t>::max()); }),
        HasSubstr("more than 63 bits"));
  });
}

}  // namespace
}  // namespace accelerate::test
