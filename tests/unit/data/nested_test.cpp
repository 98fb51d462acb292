#include "accelerate/nested.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "accelerate/batch.h"
#include "accelerate/errors.h"

namespace accelerate {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

struct Tokens {
  at::Tensor ids{};
  std::vector<std::string> text{};
  std::optional<at::Tensor> mask{};
  ACCELERATE_FIELDS(ids, text, mask)
};
struct MoreTokens : Tokens {
  at::Tensor extra{};
};
template <class T>
struct Labelled {
  T value{};
  at::Tensor label{};
  ACCELERATE_FIELDS(value, label);
};
enum class Split { kTrain, kTest };
struct Opaque {};

using TensorMap = std::map<std::string, at::Tensor>;

static_assert(is_nested<at::Tensor> && is_nested<int> && is_nested<bool> && is_nested<Split>);
static_assert(is_nested<std::vector<std::string>> && is_nested<std::vector<double>>);
static_assert(is_nested<std::pair<at::Tensor, std::string>>);
static_assert(is_nested<std::tuple<at::Tensor, std::array<at::Tensor, 2>, std::tuple<>>>);
static_assert(is_nested<std::unordered_map<std::string, std::vector<Tokens>>>);
static_assert(is_nested<Sample> && is_nested<UnlabelledBatch> && is_nested<Batch<Tokens>>);
static_assert(is_nested<torch::data::Example<TensorMap, int>>);
static_assert(is_nested<torch::data::Example<at::Tensor, torch::data::example::NoTarget>>);
static_assert(is_nested<Labelled<std::vector<Tokens>>>);
static_assert(!is_nested<Opaque> && !is_nested<std::vector<Opaque>> && !is_nested<at::Tensor*>);
static_assert(!is_nested<std::map<int, at::Tensor>> && !is_nested<Labelled<Opaque>>);
static_assert(!is_nested<MoreTokens>, "its own field would be left behind");
static_assert(std::is_aggregate_v<Tokens>);
static_assert(Nested<const Tokens&> && !Nested<Opaque&>);

at::Tensor rows(int64_t first, int64_t last) { return at::arange(first, last); }

std::vector<int64_t> values(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.to(at::kLong).contiguous().view(-1);
  return {flat.data_ptr<int64_t>(), flat.data_ptr<int64_t>() + flat.numel()};
}

template <class V>
std::vector<std::string> tensor_paths(const V& value) {
  std::vector<std::string> paths;
  for_each_tensor_with_path(
      value, [&](std::string_view path, const at::Tensor&) { paths.emplace_back(path); });
  return paths;
}

template <class Call>
std::string message_of(Call call) {
  try {
    call();
  } catch (const DataError& error) {
    return error.message();
  }
  return "no DataError";
}

TEST(Nested, AStructWithFieldsTakesDesignatedInitialisers) {
  const Tokens tokens{.ids = rows(0, 3)};
  EXPECT_THAT(values(tokens.ids), ElementsAre(0, 1, 2));
  EXPECT_FALSE(tokens.mask);
}

TEST(Nested, AStructInsideAFunctionMayNameItsFields) {
  struct Local {
    at::Tensor first{};
    at::Tensor second{};
    ACCELERATE_FIELDS(first, second)
  };
  EXPECT_THAT(tensor_paths(Local{}), ElementsAre("first", "second"));
}

TEST(Nested, PathsNameFieldsKeysAndIndices) {
  std::tuple<at::Tensor, std::vector<Labelled<TensorMap>>> value;
  std::get<1>(value).push_back({.value = {{"b", {}}, {"a", {}}}});
  EXPECT_THAT(tensor_paths(value),
              ElementsAre("[0]", "[1][0].value.a", "[1][0].value.b", "[1][0].label"));
  EXPECT_THAT(tensor_paths(at::Tensor()), ElementsAre(""));
  EXPECT_THAT(tensor_paths(torch::data::Example<>()), ElementsAre("data", "target"));
  EXPECT_THAT(tensor_paths(torch::data::TensorExample()), ElementsAre("data"));
  EXPECT_THAT(tensor_paths(Batch<Sample>()), ElementsAre("data", "target"));
}

TEST(Nested, AnOptionalIsVisitedAtItsOwnPlaceAndOnlyIfSet) {
  Tokens tokens{};
  EXPECT_THAT(tensor_paths(tokens), ElementsAre("ids"));
  tokens.mask = at::Tensor();
  EXPECT_THAT(tensor_paths(tokens), ElementsAre("ids", "mask"));
}

TEST(Nested, AnUnorderedMapIsVisitedInTheOrderOfItsKeys) {
  std::unordered_map<std::string, at::Tensor> value;
  std::vector<std::string> expected;
  for (int i = 10; i < 40; ++i) {
    expected.push_back("key" + std::to_string(i));
    value.emplace("key" + std::to_string(49 - i), at::Tensor());
  }
  EXPECT_EQ(tensor_paths(value).size(), 30);
  EXPECT_TRUE(std::ranges::is_sorted(tensor_paths(value)));
  EXPECT_EQ(tensor_paths(value), expected);
}

TEST(Nested, ForEachTensorMayReplaceTensors) {
  std::pair<at::Tensor, std::array<at::Tensor, 2>> value{rows(0, 2), {rows(2, 3), rows(3, 4)}};
  for_each_tensor(value, [](at::Tensor& tensor) { tensor = tensor * 10; });
  EXPECT_THAT(values(value.first), ElementsAre(0, 10));
  EXPECT_THAT(values(value.second[1]), ElementsAre(30));
}

TEST(Nested, MapTensorsLeavesTheValueAsItWas) {
  const Batch<Sample> batch({.data = rows(0, 2), .target = rows(2, 4)}, {.epoch = 3});
  const Batch<Sample> mapped =
      map_tensors(batch, [](const at::Tensor& tensor) { return tensor + 1; });
  EXPECT_THAT(values(mapped.data), ElementsAre(1, 2));
  EXPECT_THAT(values(mapped.target), ElementsAre(3, 4));
  EXPECT_EQ(mapped.info().epoch, 3);
  EXPECT_THAT(values(batch.data), ElementsAre(0, 1));
}

struct LeafNames {
  void tensor(const NestedPath& path, const at::Tensor&) { names.push_back("t " + path.str()); }
  template <class T>
  void rows(const NestedPath& path, std::vector<T>& entries) {
    names.push_back("r " + path.str() + " " + std::to_string(entries.size()));
  }
  template <class T>
  void constant(const NestedPath& path, T&) {
    names.push_back((std::is_same_v<T, std::string> ? "s " : "c ") + path.str());
  }
  std::vector<std::string> names{};
};

TEST(Nested, ForEachLeafTellsTensorsRowsAndConstantsApart) {
  std::tuple<Tokens, std::vector<bool>, Split, std::string> value;
  std::get<0>(value).text = {"a", "b"};
  LeafNames visitor;
  for_each_leaf(value, visitor);
  EXPECT_THAT(visitor.names, ElementsAre("t [0].ids", "r [0].text 2", "r [1] 0", "c [2]", "s [3]"));
}

TEST(Nested, TheBatchSizeIsThatOfTheFirstLeafWithRows) {
  EXPECT_EQ(find_batch_size(Sample{.data = at::zeros({}), .target = rows(0, 7)}), 7);
  EXPECT_EQ(find_batch_size(std::pair(std::vector<std::string>{"a", "b"}, rows(0, 7))), 2);
  EXPECT_EQ(find_batch_size(std::pair(3, std::string("x"))), std::nullopt);
  EXPECT_EQ(find_batch_size(Sample{}), std::nullopt);
}

TEST(Nested, SliceRowsCutsTensorsAndRowLeaves) {
  const Tokens tokens{.ids = rows(0, 8).view({4, 2}), .text = {"a", "b", "c", "d"}};
  const Tokens cut = slice_rows(tokens, 1, 3);
  EXPECT_THAT(values(cut.ids), ElementsAre(2, 3, 4, 5));
  EXPECT_THAT(cut.text, ElementsAre("b", "c"));
  EXPECT_FALSE(cut.mask);
  EXPECT_TRUE(cut.ids.is_alias_of(tokens.ids));
}

TEST(Nested, SliceRowsClampsLikePython) {
  using Value = std::pair<at::Tensor, std::vector<int>>;
  const Value value{rows(0, 4), {0, 1, 2, 3}};
  const auto sliced = [&](int64_t first, int64_t last) {
    const Value cut = slice_rows(value, first, last);
    const std::vector<int64_t> entries(cut.second.begin(), cut.second.end());
    EXPECT_EQ(values(cut.first), entries);
    return entries;
  };
  EXPECT_THAT(sliced(2, 100), ElementsAre(2, 3));
  EXPECT_THAT(sliced(-3, -1), ElementsAre(1, 2));
  EXPECT_THAT(sliced(-100, 1), ElementsAre(0));
  EXPECT_THAT(sliced(3, 1), IsEmpty());
  EXPECT_THAT(sliced(9, 12), IsEmpty());
}

TEST(Nested, SliceRowsKeepsUndefinedTensors) {
  EXPECT_FALSE(slice_rows(Sample{.data = rows(0, 3)}, 0, 1).target.defined());
}

TEST(Nested, SliceRowsNamesWhatHasNoRows) {
  const Labelled<float> number{.value = 2, .label = rows(0, 3)};
  EXPECT_EQ(message_of([&] { (void)slice_rows(number, 0, 1); }),
            "`value` has no rows and cannot be cut into rows");
  const Sample scalar{.data = rows(0, 3), .target = at::zeros({})};
  EXPECT_EQ(message_of([&] { (void)slice_rows(scalar, 0, 1); }),
            "`target` has no rows and cannot be cut into rows");
  try {
    (void)slice_rows(std::string("x"), 0, 1);
    ADD_FAILURE() << "a string was cut";
  } catch (const DataError& error) {
    EXPECT_EQ(error.message(), "the value has no rows and cannot be cut into rows");
    EXPECT_THAT(error.hint(), testing::HasSubstr("give slice_fn_for_dispatch"));
  }
}

TEST(Nested, ConcatenateJoinsWhatSliceRowsCut) {
  const std::pair<Tokens, std::vector<float>> value{
      {.ids = rows(0, 10).view({5, 2}), .text = {"a", "b", "c", "d", "e"}, .mask = rows(5, 10)},
      {1, 2, 3, 4, 5}};
  const auto joined = concatenate(
      std::vector{slice_rows(value, 0, 2), slice_rows(value, 2, 2), slice_rows(value, 2, 5)});
  EXPECT_TRUE(at::equal(joined.first.ids, value.first.ids));
  EXPECT_TRUE(at::equal(*joined.first.mask, *value.first.mask));
  EXPECT_EQ(joined.first.text, value.first.text);
  EXPECT_EQ(joined.second, value.second);
}

TEST(Nested, ConcatenateKeepsEqualConstantsAndUndefinedTensors) {
  const std::pair<Sample, Split> part{{.data = rows(0, 2)}, Split::kTest};
  const auto joined = concatenate(std::vector{part, part});
  EXPECT_THAT(values(joined.first.data), ElementsAre(0, 1, 0, 1));
  EXPECT_FALSE(joined.first.target.defined());
  EXPECT_EQ(joined.second, Split::kTest);
}

template <class V>
std::string refusal_to_join(V first, V second) {
  return message_of([&] { (void)concatenate(std::vector{first, first, second}); });
}

TEST(Nested, ConcatenateNamesTensorsThatDiffer) {
  const std::string beginning = "part 2 cannot be joined to part 0: ";
  const Sample first{.data = at::zeros({2, 3}), .target = rows(0, 2)};
  EXPECT_EQ(refusal_to_join(first, {.data = at::zeros({2, 4}), .target = rows(0, 2)}),
            beginning + "`data` is Float [2, 4] on cpu, in part 0 it is Float [2, 3] on cpu");
  EXPECT_EQ(refusal_to_join(first, {.data = at::zeros({2, 3}), .target = at::zeros({2})}),
            beginning + "`target` is Float [2] on cpu, in part 0 it is Long [2] on cpu");
  EXPECT_EQ(refusal_to_join(first, {.data = at::zeros({2, 3})}),
            beginning + "`target` is an undefined tensor, in part 0 it is Long [2] on cpu");
  EXPECT_EQ(refusal_to_join(at::zeros({}), at::zeros({})),
            "the value is a tensor without dimensions and has no rows");
}

TEST(Nested, ConcatenateNamesStructuresThatDiffer) {
  const std::string beginning = "part 2 cannot be joined to part 0: ";
  EXPECT_EQ(refusal_to_join(TensorMap{{"a", rows(0, 1)}, {"b", rows(0, 1)}},
                            TensorMap{{"a", rows(0, 1)}, {"c", rows(0, 1)}}),
            beginning + "the value is the keys `a` `c`, in part 0 it is the keys `a` `b`");
  EXPECT_EQ(refusal_to_join(std::vector<at::Tensor>(1, rows(0, 1)),
                            std::vector<at::Tensor>(2, rows(0, 1))),
            beginning + "the value is 2 entries, in part 0 it is 1 entries");
  EXPECT_EQ(
      refusal_to_join(Tokens{.ids = rows(0, 1), .mask = rows(0, 1)}, Tokens{.ids = rows(0, 1)}),
      beginning + "`mask` is 0 entries, in part 0 it is 1 entries");
  EXPECT_EQ(refusal_to_join(std::pair(rows(0, 1), 1), std::pair(rows(0, 1), 2)),
            beginning + "`[1]` is the same for all rows, but differs between them");
}

TEST(Nested, ConcatenateRefusesNothing) {
  EXPECT_EQ(message_of([] { (void)concatenate(std::vector<Sample>()); }),
            "there is nothing to join: no part was given");
}

TEST(Nested, SendToDeviceSharesWhatIsThere) {
  const Tokens tokens{.ids = rows(0, 3), .text = {"a", "b", "c"}};
  const Tokens sent = send_to_device(tokens, at::kCPU);
  EXPECT_TRUE(sent.ids.is_same(tokens.ids));
  EXPECT_EQ(sent.text, tokens.text);
  const Tokens meta = send_to_device(tokens, at::kMeta);
  EXPECT_TRUE(meta.ids.is_meta());
  EXPECT_TRUE(tokens.ids.is_cpu());
}

}  // namespace
}  // namespace accelerate
