#include <accelerate/errors.h>
#include <accelerate/nested.h>
#include <accelerate/split.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <vector>

#include "unit/core/fake_rank.h"

namespace accelerate {
namespace {

using test::fake_rank;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

using Ints = std::vector<int>;

Ints integers_below(int count) {
  Ints all(static_cast<size_t>(count));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

// What each rank gets of 0..length-1.
std::vector<Ints> shares(int length, int world_size, bool apply_padding = false) {
  std::vector<Ints> result;
  for (int rank = 0; rank < world_size; ++rank) {
    result.push_back(split_between_processes(fake_rank(rank, world_size), integers_below(length),
                                             {.apply_padding = apply_padding}));
  }
  return result;
}

template <class Action>
std::string usage_error(Action action) {
  try {
    action();
  } catch (const UsageError& error) {
    return error.message();
  }
  return "nothing was thrown";
}

TEST(Split, TheFirstRanksHaveOneMore) {
  EXPECT_THAT(shares(3, 2), ElementsAre(Ints{0, 1}, Ints{2}));
  EXPECT_THAT(shares(4, 3), ElementsAre(Ints{0, 1}, Ints{2}, Ints{3}));
  EXPECT_THAT(shares(5, 3), ElementsAre(Ints{0, 1}, Ints{2, 3}, Ints{4}));
  EXPECT_THAT(shares(9, 3), ElementsAre(Ints{0, 1, 2}, Ints{3, 4, 5}, Ints{6, 7, 8}));
  EXPECT_THAT(shares(5, 4), ElementsAre(Ints{0, 1}, Ints{2}, Ints{3}, Ints{4}));
}

TEST(Split, FewerInputsThanRanksLeaveTheLastRanksWithNone) {
  EXPECT_THAT(shares(2, 4), ElementsAre(Ints{0}, Ints{1}, IsEmpty(), IsEmpty()));
  EXPECT_THAT(shares(0, 3), ElementsAre(IsEmpty(), IsEmpty(), IsEmpty()));
}

TEST(Split, PaddingRepeatsTheVeryLastInputUntilAllRanksHaveEquallyMany) {
  EXPECT_THAT(shares(3, 2, true), ElementsAre(Ints{0, 1}, Ints{2, 2}));
  EXPECT_THAT(shares(7, 3, true), ElementsAre(Ints{0, 1, 2}, Ints{3, 4, 6}, Ints{5, 6, 6}));
  EXPECT_THAT(shares(9, 4, true),
              ElementsAre(Ints{0, 1, 2}, Ints{3, 4, 8}, Ints{5, 6, 8}, Ints{7, 8, 8}));
  EXPECT_THAT(shares(1, 4, true), ElementsAre(Ints{0}, Ints{0}, Ints{0}, Ints{0}));
  EXPECT_THAT(shares(8, 4, true), ElementsAre(Ints{0, 1}, Ints{2, 3}, Ints{4, 5}, Ints{6, 7}));
}

TEST(Split, NothingCannotBePaddedUnlessThereIsOneProcess) {
  EXPECT_EQ(usage_error([] { (void)shares(0, 2, true); }),
            "there is no input to repeat for the padding");
  EXPECT_THAT(shares(0, 1, true), ElementsAre(IsEmpty()));
}

TEST(Split, SharesOfEveryLengthAreConsecutiveAndCoverAll) {
  for (int world_size = 1; world_size <= 9; ++world_size) {
    for (int64_t length = 0; length <= 40; ++length) {
      int64_t next = 0;
      for (int rank = 0; rank < world_size; ++rank) {
        const ProcessShare share = process_share(length, rank, world_size);
        ASSERT_EQ(share.first, next) << length << " over " << world_size;
        ASSERT_EQ(share.padding, 0);
        next = share.last;
      }
      ASSERT_EQ(next, length);
    }
  }
}

TEST(Split, CutsTensorsByRows) {
  const at::Tensor rows = torch::arange(10).reshape({5, 2});
  EXPECT_TRUE(split_between_processes(fake_rank(0, 2), rows).equal(rows.slice(0, 0, 3)));
  const at::Tensor view = split_between_processes(fake_rank(1, 2), rows);
  EXPECT_TRUE(view.equal(rows.slice(0, 3, 5)));
  EXPECT_TRUE(view.is_alias_of(rows));
  EXPECT_TRUE(split_between_processes(fake_rank(1, 2), rows, {.apply_padding = true})
                  .equal(torch::tensor({{6, 7}, {8, 9}, {8, 9}})));
  EXPECT_EQ(split_between_processes(fake_rank(3, 4), rows.slice(0, 0, 3)).sizes(),
            (std::vector<int64_t>{0, 2}));
}

TEST(Split, CutsAllListsOfAMapAlike) {
  using Columns = std::map<std::string, Ints>;
  const Columns columns{{"a", {1, 2, 3, 4, 5}}, {"b", {6, 7, 8, 9, 10}}};
  EXPECT_THAT(split_between_processes(fake_rank(0, 3), columns),
              ElementsAre(Pair("a", ElementsAre(1, 2)), Pair("b", ElementsAre(6, 7))));
  EXPECT_THAT(split_between_processes(fake_rank(2, 3), columns),
              ElementsAre(Pair("a", ElementsAre(5)), Pair("b", ElementsAre(10))));
  EXPECT_THAT(split_between_processes(fake_rank(2, 3), columns, {.apply_padding = true}),
              ElementsAre(Pair("a", ElementsAre(5, 5)), Pair("b", ElementsAre(10, 10))));
}

TEST(Split, CutsMapsOfTensors) {
  const std::unordered_map<std::string, at::Tensor> tensors{{"x", torch::arange(4)},
                                                            {"y", torch::arange(8).view({4, 2})}};
  const auto own = split_between_processes(fake_rank(1, 2), tensors);
  EXPECT_TRUE(own.at("x").equal(torch::tensor({2, 3})));
  EXPECT_TRUE(own.at("y").equal(torch::tensor({{4, 5}, {6, 7}})));
}

TEST(Split, CutsWhatIsNestedAndHandsLoneValuesToAll) {
  const std::tuple<std::map<std::string, std::map<std::string, Ints>>, std::string, at::Tensor>
      inputs{{{"outer", {{"inner", {1, 2, 3}}}}}, "name", torch::arange(3)};
  const auto [map, name, tensor] = split_between_processes(fake_rank(1, 2), inputs);
  EXPECT_THAT(map.at("outer").at("inner"), ElementsAre(3));
  EXPECT_EQ(name, "name");
  EXPECT_TRUE(tensor.equal(torch::tensor({2})));
}

TEST(Split, AVectorIsCutByItsEntriesWhateverTheyAre) {
  const std::vector<std::map<std::string, Ints>> records{{{"a", {1, 2}}}, {{"b", {}}}, {}};
  EXPECT_EQ(split_between_processes(fake_rank(1, 2), records),
            (std::vector<std::map<std::string, Ints>>{{}}));
  const std::vector<at::Tensor> scalars{torch::tensor(1), torch::tensor(2), torch::tensor(3)};
  const auto own = split_between_processes(fake_rank(1, 2), scalars, {.apply_padding = true});
  ASSERT_EQ(own.size(), 2u);
  EXPECT_EQ(own[0].item<int>() + own[1].item<int>(), 6);
}

struct Prompts {
  std::vector<std::string> text{};
  at::Tensor length{};
  ACCELERATE_FIELDS(text, length)
};

TEST(Split, CutsStructsThatNameTheirFields) {
  const Prompts own = split_between_processes(
      fake_rank(0, 2), Prompts{.text = {"a", "bb", "ccc"}, .length = torch::tensor({1, 2, 3})});
  EXPECT_THAT(own.text, ElementsAre("a", "bb"));
  EXPECT_TRUE(own.length.equal(torch::tensor({1, 2})));
}

TEST(Split, RefusesListsOfDifferentLengthsByName) {
  const std::map<std::string, Ints> columns{{"a", {1, 2}}, {"b", {1}}};
  EXPECT_EQ(usage_error([&] { (void)split_between_processes(fake_rank(0, 2), columns); }),
            "'a' has 2 inputs, 'b' has 1");
  EXPECT_EQ(split_between_processes(fake_rank(0, 1), columns), columns);
}

TEST(Split, RefusesWhatHasNoRows) {
  EXPECT_EQ(usage_error([] { (void)split_between_processes(fake_rank(0, 2), torch::tensor(1)); }),
            "the tensor has no dimension, so it cannot be cut into rows");
  EXPECT_EQ(usage_error([] {
              (void)split_between_processes(fake_rank(0, 2),
                                            std::map<std::string, at::Tensor>{{"x", {}}});
            }),
            "'x' is undefined, so it cannot be cut into rows");
  EXPECT_EQ(usage_error([] {
              (void)split_between_processes(fake_rank(0, 2), std::map<std::string, Ints>{});
            }),
            "there is no list to split");
}

TEST(Split, OneProcessGetsTheInputsThemselves) {
  const at::Tensor tensor = torch::tensor(1);
  EXPECT_TRUE(split_between_processes(fake_rank(0, 1), tensor).is_same(tensor));
  Ints numbers{1, 2, 3};
  const int* address = numbers.data();
  EXPECT_EQ(split_between_processes(fake_rank(0, 1), std::move(numbers)).data(), address);
}

// The share is gone when the call returns.
TEST(Split, ReturnsNoReferenceIntoTheShare) {
  const auto itself = [](Ints& share) -> Ints& { return share; };
  static_assert(
      std::is_same_v<decltype(split_between_processes(fake_rank(0, 2), Ints{}, itself)), Ints>);
  EXPECT_THAT(split_between_processes(fake_rank(1, 2), integers_below(4), itself),
              ElementsAre(2, 3));
}

TEST(Split, HandsTheShareToAFunctionAndReturnsItsResult) {
  const Ints inputs{1, 2, 3};
  const auto sum = [](const Ints& share) { return std::accumulate(share.begin(), share.end(), 0); };
  EXPECT_EQ(split_between_processes(fake_rank(0, 2), inputs, sum), 3);
  EXPECT_EQ(split_between_processes(fake_rank(1, 2), inputs, sum, {.apply_padding = true}), 6);
  EXPECT_EQ(split_between_processes(fake_rank(3, 4), inputs, sum), 0);
  split_between_processes(fake_rank(1, 2), inputs, [](Ints& share) { share.clear(); });
  EXPECT_THAT(inputs, ElementsAre(1, 2, 3));
}

static_assert(Splittable<std::vector<std::string>> && Splittable<const at::Tensor&>);
static_assert(Splittable<std::map<std::string, at::Tensor>>);
static_assert(!Splittable<int> && !Splittable<std::string> && !Splittable<std::unique_ptr<int>>);
static_assert(!Splittable<std::array<int, 3>>);  // its length cannot change

}  // namespace
}  // namespace accelerate
