#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <map>
#include <string>
#include <thread>
#include <vector>

#include "accelerate/detail/collated.h"
#include "accelerate/detail/pinned_collation.h"
#include "accelerate/errors.h"
#include "accelerate/nested.h"

namespace accelerate::detail {
namespace {

using testing::ElementsAre;

struct ImageBatch {
  at::Tensor image{};
  at::Tensor label{};
  std::vector<std::string> name{};
  ACCELERATE_FIELDS(image, label, name)
};
struct Image {
  using Batch = ImageBatch;
  at::Tensor image{};
  int label = 0;
  std::string name{};
  ACCELERATE_FIELDS(image, label, name)
};
struct TensorsOnly {
  at::Tensor a{};
  std::map<std::string, at::Tensor> b{};
  ACCELERATE_FIELDS(a, b)
};
enum class CollateSplit : uint8_t { kTrain, kTest };

template <class T, class C>
inline constexpr bool is_collated = std::is_same_v<Collated<T>, C>;
static_assert(is_collated<at::Tensor, at::Tensor> && is_collated<int, at::Tensor>);
static_assert(is_collated<std::vector<float>, at::Tensor>);
static_assert(is_collated<std::array<bool, 3>, at::Tensor>);
static_assert(is_collated<std::string, std::vector<std::string>>);
static_assert(is_collated<std::vector<std::string>, std::vector<std::vector<std::string>>>);
static_assert(is_collated<std::array<at::Tensor, 2>, std::array<at::Tensor, 2>>);
static_assert(
    is_collated<std::pair<int, std::string>, std::pair<at::Tensor, std::vector<std::string>>>);
static_assert(is_collated<std::tuple<>, std::tuple<>>);
static_assert(is_collated<std::unordered_map<std::string, float>,
                          std::unordered_map<std::string, at::Tensor>>);
static_assert(is_collated<torch::data::Example<std::vector<float>, int>, torch::data::Example<>>);
static_assert(is_collated<torch::data::TensorExample, torch::data::TensorExample>);
static_assert(is_collated<Sample, Sample> && is_collated<TensorsOnly, TensorsOnly>);
static_assert(is_collated<Image, ImageBatch>);
static_assert(std::is_same_v<BatchOf<at::Tensor>, UnlabelledBatch>);
static_assert(std::is_same_v<BatchOf<ImageBatch>, ImageBatch>);

template <class T>
Collated<T> collate(std::vector<T> samples) {
  return collate_samples(std::move(samples));
}

template <class T>
std::string collate_refusal(std::vector<T> samples) {
  try {
    (void)collate_samples(std::move(samples));
  } catch (const DataError& error) {
    return error.message();
  }
  return "no DataError";
}

// Says how the tensors differ, if they do.
testing::AssertionResult same(const at::Tensor& got, const at::Tensor& expected) {
  if (got.scalar_type() == expected.scalar_type() && at::equal(got, expected)) {
    return testing::AssertionSuccess();
  }
  return testing::AssertionFailure() << got << "\nis not\n" << expected;
}

TEST(Collate, StacksTensorsAlongANewFirstDimension) {
  const at::Tensor batch = collate<at::Tensor>({at::arange(3), at::arange(3, 6)});
  EXPECT_TRUE(same(batch, at::arange(6).view({2, 3})));
  EXPECT_TRUE(same(to_batch(collate<at::Tensor>({at::zeros({}), at::ones({})})).data,
                   at::arange(2).to(at::kFloat)));
}

TEST(Collate, StacksEmptyTensors) {
  EXPECT_EQ(collate<at::Tensor>({at::zeros({0, 2}), at::zeros({0, 2})}).sizes(),
            at::IntArrayRef({2, 0, 2}));
}

TEST(Collate, StacksWhatCannotBeCopiedByItsBytes) {
  const at::Tensor base = at::arange(6).view({2, 3});
  EXPECT_TRUE(same(collate<at::Tensor>({base.t(), base.t()}), at::stack({base.t(), base.t()})));

  const at::Tensor complex = at::complex(at::ones({2}), at::ones({2}));
  EXPECT_TRUE(same(collate<at::Tensor>({complex.conj(), complex}),
                   at::stack({complex.conj().resolve_conj(), complex})));
  EXPECT_TRUE(same(collate<at::Tensor>({at::_neg_view(at::ones({2})), at::ones({2})}),
                   at::stack({-at::ones({2}), at::ones({2})})));
}

TEST(Collate, KeepsTheGraphOfTensorsThatNeedGradients) {
  const at::Tensor leaf = torch::ones({2}, at::requires_grad());
  const at::Tensor batch = collate<at::Tensor>({leaf * 3, at::ones({2})});
  batch.sum().backward();
  EXPECT_TRUE(same(leaf.grad(), at::full({2}, 3.0F)));
}

TEST(Collate, TheBatchDoesNotShareMemoryWithTheSamples) {
  const at::Tensor sample = at::zeros({2});
  const at::Tensor batch = collate<at::Tensor>({sample});
  sample.fill_(1);
  EXPECT_TRUE(same(batch, at::zeros({1, 2})));
}

TEST(Collate, NumbersBecomeTensorsOfTheirDtype) {
  EXPECT_TRUE(same(collate<bool>({true, false}), torch::tensor({true, false})));
  EXPECT_TRUE(same(collate<uint8_t>({1, 255}), at::tensor({1, 255}, at::kByte)));
  EXPECT_TRUE(same(collate<int>({1, -2}), at::tensor({1, -2}, at::kLong)));
  EXPECT_TRUE(same(collate<uint16_t>({1, 65535}), at::tensor({1, 65535}, at::kLong)));
  EXPECT_TRUE(same(collate<float>({0.5F}), at::tensor({0.5F}, at::kFloat)));
  EXPECT_TRUE(same(collate<double>({0.1}), at::tensor({0.1}, at::kDouble)));
  EXPECT_TRUE(same(collate<CollateSplit>({CollateSplit::kTrain, CollateSplit::kTest}),
                   at::tensor({0, 1}, at::kLong)));
}

TEST(Collate, SequencesOfNumbersBecomeRows) {
  EXPECT_TRUE(
      same(collate<std::vector<int>>({{1, 2, 3}, {4, 5, 6}}), at::arange(1, 7).view({2, 3})));
  EXPECT_TRUE(
      same(collate<std::vector<bool>>({{true, false}}), torch::tensor({true, false}).unsqueeze(0)));
  const std::array<float, 2> row{1, 2};
  EXPECT_TRUE(same(collate<std::array<float, 2>>({row, row, row}),
                   at::tensor({1.0F, 2.0F}).expand({3, 2})));
}

TEST(Collate, StringsStayRows) {
  EXPECT_THAT(collate<std::string>({"a", "b"}), ElementsAre("a", "b"));
}

TEST(Collate, SequencesOfOtherThingsAreTransposed) {
  const auto batch = collate<std::vector<std::string>>({{"a", "b"}, {"c", "d"}, {"e", "f"}});
  EXPECT_THAT(batch, ElementsAre(ElementsAre("a", "c", "e"), ElementsAre("b", "d", "f")));
  const auto tensors = collate<std::array<at::Tensor, 2>>({{at::zeros({2}), at::ones({3})}});
  EXPECT_EQ(tensors[0].sizes(), at::IntArrayRef({1, 2}));
  EXPECT_EQ(tensors[1].sizes(), at::IntArrayRef({1, 3}));
}

TEST(Collate, PairsTuplesAndOptionalsAreCollatedWithin) {
  const auto [pixels, label] = collate<std::pair<at::Tensor, int>>({{at::zeros({2}), 3}});
  EXPECT_EQ(pixels.sizes(), at::IntArrayRef({1, 2}));
  EXPECT_TRUE(same(label, at::tensor({3}, at::kLong)));

  const auto triple = collate<std::tuple<int, std::string, float>>({{1, "a", 2}, {3, "b", 4}});
  EXPECT_TRUE(same(std::get<0>(triple), at::tensor({1, 3}, at::kLong)));
  EXPECT_THAT(std::get<1>(triple), ElementsAre("a", "b"));
  EXPECT_TRUE(same(std::get<2>(triple), at::tensor({2, 4}, at::kFloat)));

  EXPECT_FALSE(collate<std::optional<int>>({std::nullopt, std::nullopt}));
  EXPECT_TRUE(same(*collate<std::optional<int>>({1, 2}), at::tensor({1, 2}, at::kLong)));
}

TEST(Collate, MapsAreCollatedByKey) {
  const auto batch =
      collate<std::map<std::string, int>>({{{"x", 1}, {"y", 2}}, {{"x", 3}, {"y", 4}}});
  EXPECT_EQ(batch.size(), 2);
  EXPECT_TRUE(same(batch.at("x"), at::tensor({1, 3}, at::kLong)));
  EXPECT_TRUE(same(batch.at("y"), at::tensor({2, 4}, at::kLong)));
}

TEST(Collate, ExamplesAndSamplesKeepTheirFields) {
  const auto example = collate<torch::data::Example<std::vector<float>, int>>({{{1, 2}, 7}});
  EXPECT_TRUE(same(example.data, at::tensor({1.0F, 2.0F}).unsqueeze(0)));
  EXPECT_TRUE(same(example.target, at::tensor({7}, at::kLong)));
  const auto unlabelled = collate<torch::data::TensorExample>({{at::zeros({3})}});
  EXPECT_EQ(unlabelled.data.sizes(), at::IntArrayRef({1, 3}));
  const Sample sample = collate<Sample>({{.data = at::zeros({3})}, {.data = at::zeros({3})}});
  EXPECT_EQ(sample.data.sizes(), at::IntArrayRef({2, 3}));
  EXPECT_FALSE(sample.target.defined());
}

TEST(Collate, AStructBecomesTheBatchThatItNames) {
  const ImageBatch batch = collate<Image>({{.image = at::zeros({2}), .label = 4, .name = "a"},
                                           {.image = at::ones({2}), .label = 5, .name = "b"}});
  EXPECT_TRUE(same(batch.image, at::stack({at::zeros({2}), at::ones({2})})));
  EXPECT_TRUE(same(batch.label, at::tensor({4, 5}, at::kLong)));
  EXPECT_THAT(batch.name, ElementsAre("a", "b"));
}

TEST(Collate, AStructThatNamesNoneBecomesItself) {
  const TensorsOnly batch =
      collate<TensorsOnly>({{.a = at::zeros({2}), .b = {{"k", at::ones({1})}}}});
  EXPECT_EQ(batch.a.sizes(), at::IntArrayRef({1, 2}));
  EXPECT_EQ(batch.b.at("k").sizes(), at::IntArrayRef({1, 1}));
}

TEST(Collate, NamesSamplesWhoseTensorsDiffer) {
  const at::Tensor one = at::zeros({2, 3});
  EXPECT_EQ(collate_refusal<at::Tensor>({one, one, at::zeros({2})}),
            "samples 0 and 2 of a batch differ in shape: [2, 3] and [2]");
  EXPECT_EQ(collate_refusal<Sample>({{one, one}, {one, one.to(at::kLong)}}),
            "samples 0 and 1 of a batch differ in dtype at `target`: Float and Long");
  EXPECT_EQ(collate_refusal<at::Tensor>({one, one.to(at::kMeta)}),
            "samples 0 and 1 of a batch differ in device: cpu and meta");
  EXPECT_EQ(collate_refusal<Sample>({{one, one}, {one, one}, {one, {}}}),
            "sample 2 of a batch holds an undefined tensor at `target`");
}

TEST(Collate, NamesSamplesWhoseStructureDiffers) {
  EXPECT_EQ(collate_refusal<std::vector<int>>({{1, 2}, {3}}),
            "samples 0 and 1 of a batch differ in length: 2 and 1");
  EXPECT_EQ((collate_refusal<std::pair<int, std::vector<std::string>>>({{1, {"a"}}, {2, {}}})),
            "samples 0 and 1 of a batch differ in length at `[1]`: 1 and 0");
  EXPECT_EQ((collate_refusal<std::map<std::string, int>>({{{"x", 1}}, {{"x", 1}}, {{"y", 1}}})),
            "samples 0 and 2 of a batch differ in their keys: one of them lacks `y`");
  EXPECT_EQ((collate_refusal<std::map<std::string, int>>({{{"x", 1}, {"y", 1}}, {{"x", 1}}})),
            "samples 0 and 1 of a batch differ in their keys: one of them lacks `y`");
  EXPECT_EQ(collate_refusal<std::optional<int>>({1, std::nullopt}),
            "only one of samples 0 and 1 of a batch has a value");
}

TEST(Collate, RefusesABatchWithoutSamples) {
  EXPECT_EQ(collate_refusal<at::Tensor>({}), "the dataset returned a batch without samples");
}

TEST(PinnedCollation, HoldsForItsThreadUntilItsEnd) {
  EXPECT_FALSE(PinnedCollation::active());
  {
    const PinnedCollation outer;
    { const PinnedCollation inner; }
    EXPECT_TRUE(PinnedCollation::active());
    bool elsewhere = true;
    std::thread([&] { elsewhere = PinnedCollation::active(); }).join();
    EXPECT_FALSE(elsewhere);
  }
  EXPECT_FALSE(PinnedCollation::active());
}

TEST(PinnedCollation, WithoutItNothingIsPinned) {
  EXPECT_FALSE(collate<at::Tensor>({at::zeros({2})}).is_pinned());
}

}  // namespace
}  // namespace accelerate::detail
