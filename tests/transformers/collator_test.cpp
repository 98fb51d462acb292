#include "accelerate/transformers/collator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "accelerate/errors.h"
#include "transformers/tokenizer_folder.h"

namespace accelerate::test {
namespace {

using transformers::DataCollatorForLanguageModeling;
using transformers::DataCollatorForSeq2Seq;
using transformers::DataCollatorForTokenClassification;
using transformers::DataCollatorWithPadding;
using transformers::ModelInputs;
using transformers::TextLabel;
using transformers::TextSample;

TextSample sample(std::vector<int64_t> ids, TextLabel label = {}) {
  TextSample result;
  result.input_ids = std::move(ids);
  result.label = std::move(label);
  return result;
}

template <class Collator>
std::string complaint(const Collator& collator, const std::vector<TextSample>& samples) {
  try {
    static_cast<void>(collator(samples));
  } catch (const Error& error) {
    return error.message();
  }
  return "no error";
}

TEST(DataCollator, PadsToTheLongestAndStacksLabels) {
  const auto tokenizer = words_tokenizer();
  const DataCollatorWithPadding collator(tokenizer);
  const ModelInputs inputs = collator({TextSample(tokenizer.encode("one", {}), int64_t{1}),
                                       TextSample(tokenizer.encode({"two", "three"}), int64_t{0})});
  EXPECT_TRUE(inputs.input_ids.equal(rows({{2, 5, 3, 0, 0}, {2, 6, 3, 7, 3}})));
  EXPECT_TRUE(inputs.attention_mask.equal(rows({{1, 1, 1, 0, 0}, {1, 1, 1, 1, 1}})));
  EXPECT_TRUE(inputs.token_type_ids.equal(rows({{0, 0, 0, 0, 0}, {0, 0, 0, 1, 1}})));
  EXPECT_TRUE(inputs.labels.equal(torch::tensor({1, 0}, torch::kInt64)));
}

TEST(DataCollator, PadsToALengthToAMultipleAndOnTheLeft) {
  const auto tokenizer = words_tokenizer();
  const std::vector<TextSample> samples{sample({5, 6, 7}), sample({5})};
  EXPECT_TRUE(
      DataCollatorWithPadding(tokenizer, {.pad_to_multiple_of = 4})(samples).input_ids.equal(
          rows({{5, 6, 7, 0}, {5, 0, 0, 0}})));
  const ModelInputs inputs = DataCollatorWithPadding(
      tokenizer, {.max_length = 5, .padding_side = TokenSide::kLeft})(samples);
  EXPECT_TRUE(inputs.input_ids.equal(rows({{0, 0, 5, 6, 7}, {0, 0, 0, 0, 5}})));
  EXPECT_TRUE(inputs.attention_mask.equal(rows({{0, 0, 1, 1, 1}, {0, 0, 0, 0, 1}})));
  EXPECT_FALSE(inputs.labels.defined());
}

TEST(DataCollator, TakesEncodingsAsTheyAre) {
  const auto tokenizer = words_tokenizer();
  const std::vector<Encoding> encodings{tokenizer.encode("one two"), tokenizer.encode("three")};
  EXPECT_TRUE(DataCollatorWithPadding(tokenizer)(encodings).input_ids.equal(
      rows({{2, 5, 6, 3}, {2, 7, 3, 0}})));
}

TEST(DataCollator, StacksNumbersOfAnyKind) {
  const DataCollatorWithPadding collator(words_tokenizer());
  const at::Tensor values = collator({sample({5}, 0.5), sample({6}, 2.0)}).labels;
  EXPECT_TRUE(values.equal(torch::tensor({0.5F, 2.0F})));
  const at::Tensor lists =
      collator({sample({5}, std::vector<float>{1, 0}), sample({6}, std::vector<float>{0, 1})})
          .labels;
  EXPECT_TRUE(lists.equal(torch::tensor({{1.0F, 0.0F}, {0.0F, 1.0F}})));
  EXPECT_EQ(complaint(collator, {sample({5}, int64_t{1}), sample({6}, 0.5)}),
            "samples 0 and 1 of a batch differ in the kind or number of their labels");
  EXPECT_EQ(complaint(collator,
                      {sample({5}, std::vector<float>{1, 0}), sample({6}, std::vector<float>{1})}),
            "samples 0 and 1 of a batch differ in the kind or number of their labels");
  EXPECT_EQ(complaint(collator, {sample({5}), sample({6}), sample({6}, 0.5)}),
            "samples 0 and 2 of a batch differ in the kind or number of their labels");
}

TEST(DataCollator, PadsTheLabelsOfTokensLikeTheTokens) {
  const auto tokenizer = words_tokenizer();
  const std::vector<TextSample> samples{sample({2, 5, 3}, std::vector<int64_t>{-100, 1, -100}),
                                        sample({2, 3}, std::vector<int64_t>{-100, -100})};
  EXPECT_TRUE(DataCollatorForTokenClassification(tokenizer)(samples).labels.equal(
      rows({{-100, 1, -100}, {-100, -100, -100}})));
  const ModelInputs left = DataCollatorForTokenClassification(
      tokenizer, {.max_length = 4, .padding_side = TokenSide::kLeft, .label_pad = 7})(samples);
  EXPECT_TRUE(left.labels.equal(rows({{7, -100, 1, -100}, {7, 7, -100, -100}})));
  EXPECT_EQ(complaint(DataCollatorForTokenClassification(tokenizer),
                      {sample({5, 6}, std::vector<int64_t>{1})}),
            "sample 0 of a batch has 1 labels for 2 tokens");
}

TEST(DataCollator, LeavesLabelsOutWhereNoSampleHasThem) {
  const auto tokenizer = words_tokenizer();
  const std::vector<TextSample> samples{sample({5}), sample({6, 7})};
  EXPECT_FALSE(DataCollatorForTokenClassification(tokenizer)(samples).labels.defined());
  EXPECT_FALSE(DataCollatorForSeq2Seq(tokenizer)(samples).labels.defined());
  EXPECT_EQ(complaint(DataCollatorForTokenClassification(tokenizer),
                      {sample({5}, std::vector<int64_t>{1}), sample({6})}),
            "sample 1 of a batch has no list of whole numbers as its label");
}

TEST(DataCollator, PadsTheOtherTextByItself) {
  const DataCollatorForSeq2Seq collator(words_tokenizer(), {.pad_to_multiple_of = 2});
  const ModelInputs inputs = collator(
      {sample({5}, std::vector<int64_t>{6, 7, 8}), sample({5, 6}, std::vector<int64_t>{9})});
  EXPECT_TRUE(inputs.input_ids.equal(rows({{5, 0}, {5, 6}})));
  EXPECT_TRUE(inputs.labels.equal(rows({{6, 7, 8, -100}, {9, -100, -100, -100}})));
}

TEST(DataCollator, RefusesWhatMakesNoBatch) {
  const auto tokenizer = words_tokenizer();
  EXPECT_EQ(complaint(DataCollatorWithPadding(tokenizer), {}), "a batch has no samples");
  EXPECT_EQ(complaint(DataCollatorWithPadding(tokenizer, {.max_length = 2}),
                      {sample({5}), sample({5, 6, 7})}),
            "sample 1 of a batch has 3 tokens, which is more than max_length, 2");
  TextSample crooked = sample({5, 6});
  crooked.attention_mask = {1};
  EXPECT_EQ(complaint(DataCollatorWithPadding(tokenizer), {crooked}),
            "sample 0 has 2 input_ids and 1 of attention_mask");
  const auto without = words_tokenizer({{"tokenizer_class", "GPT2Tokenizer"}});
  EXPECT_EQ(complaint(DataCollatorWithPadding(without), {sample({5}), sample({5, 6})}),
            "texts of different lengths need padding, and the tokenizer has no pad token");
  EXPECT_EQ(complaint(DataCollatorWithPadding(without), {sample({5}), sample({6})}), "no error");
  EXPECT_THROW(DataCollatorWithPadding(tokenizer, {.max_length = 0}), UsageError);
}

TEST(LanguageModeling, LabelsAreTheTextWithoutItsPadding) {
  auto tokenizer = words_tokenizer();
  tokenizer.set_pad_token("[SEP]");  // which also ends each text
  const DataCollatorForLanguageModeling collator(tokenizer);
  const std::vector<Encoding> encodings{tokenizer.encode("one two"), tokenizer.encode("three")};
  const ModelInputs inputs = collator(encodings);
  EXPECT_TRUE(inputs.input_ids.equal(rows({{2, 5, 6, 3}, {2, 7, 3, 3}})));
  EXPECT_TRUE(inputs.labels.equal(rows({{2, 5, 6, 3}, {2, 7, 3, -100}})));
}

struct MaskedShares {
  double chosen = 0, masked = 0, random = 0, kept = 0;
};

MaskedShares shares_of(const at::Tensor& before, const ModelInputs& inputs) {
  const at::Tensor chosen = inputs.labels.ne(-100);
  const auto count = [](const at::Tensor& mask) { return mask.sum().item<double>(); };
  const double all = count(chosen);
  const at::Tensor masked = chosen.logical_and(inputs.input_ids.eq(4));
  const at::Tensor kept = chosen.logical_and(inputs.input_ids.eq(before));
  return {.chosen = all / static_cast<double>(before.numel()),
          .masked = count(masked) / all,
          .random = (all - count(masked) - count(kept)) / all,
          .kept = count(kept) / all};
}

TEST(LanguageModeling, MasksTheShareOfTokensThatItIsTold) {
  const auto tokenizer = words_tokenizer();
  std::vector<TextSample> samples;
  for (uint64_t i = 0; i < 64; ++i) {
    samples.push_back(sample(std::vector<int64_t>(512, 5 + static_cast<int64_t>(i % 9))));
    samples.back().random = i;
  }
  const at::Tensor before = DataCollatorWithPadding(tokenizer)(samples).input_ids;
  const ModelInputs inputs =
      DataCollatorForLanguageModeling(tokenizer, {.mlm_probability = 0.15, .seed = 1})(samples);
  const MaskedShares shares = shares_of(before, inputs);
  EXPECT_NEAR(shares.chosen, 0.15, 0.01);
  // One of 14 random tokens is the mask, and one is the token itself.
  EXPECT_NEAR(shares.masked, 0.8 + 0.1 / 14, 0.02);
  EXPECT_NEAR(shares.kept, 0.1 + 0.1 / 14, 0.02);
  EXPECT_NEAR(shares.random, 0.1 * 12 / 14, 0.02);
  EXPECT_TRUE(inputs.labels.eq(-100).logical_or(inputs.labels.eq(before)).all().item<bool>());
  EXPECT_TRUE(inputs.labels.ne(-100).logical_or(inputs.input_ids.eq(before)).all().item<bool>());
}

TEST(LanguageModeling, NeverMasksSpecialTokensAndPadding) {
  const auto tokenizer = words_tokenizer();
  const DataCollatorForLanguageModeling all(
      tokenizer, {.mlm_probability = 1, .mask_replace = 1, .random_replace = 0});
  const std::vector<Encoding> encodings{tokenizer.encode("one two"), tokenizer.encode("three")};
  const ModelInputs inputs = all(encodings);
  EXPECT_TRUE(inputs.input_ids.equal(rows({{2, 4, 4, 3}, {2, 4, 3, 0}})));
  EXPECT_TRUE(inputs.labels.equal(rows({{-100, 5, 6, -100}, {-100, 7, -100, -100}})));
  EXPECT_TRUE(all({sample({2, 5, 3})}).labels.equal(rows({{-100, 5, -100}})));
}

TEST(LanguageModeling, MasksDependOnTheSeedTheTextAndItsRandomNumberAlone) {
  const auto tokenizer = words_tokenizer();
  const auto masked = [&](uint64_t seed, uint64_t random, size_t place) {
    std::vector<TextSample> samples(place + 1, sample(std::vector<int64_t>(64, 6)));
    samples[place] = sample(std::vector<int64_t>(64, 7));
    samples[place].random = random;
    return DataCollatorForLanguageModeling(tokenizer,
                                           {.mlm_probability = 0.5, .seed = seed})(samples)
        .input_ids[static_cast<int64_t>(place)];
  };
  EXPECT_TRUE(masked(1, 1, 0).equal(masked(1, 1, 3)));
  EXPECT_FALSE(masked(1, 1, 0).equal(masked(2, 1, 0)));
  EXPECT_FALSE(masked(1, 1, 0).equal(masked(1, 2, 0)));
}

TEST(LanguageModeling, RefusesSharesThatAreNone) {
  const auto tokenizer = words_tokenizer();
  EXPECT_THROW(DataCollatorForLanguageModeling(tokenizer, {.mlm_probability = 1.5}), UsageError);
  EXPECT_THROW(DataCollatorForLanguageModeling(
                   tokenizer, {.mlm_probability = 0.1, .mask_replace = 0.8, .random_replace = 0.3}),
               UsageError);
  EXPECT_THROW(
      DataCollatorForLanguageModeling(words_tokenizer({{"tokenizer_class", "GPT2Tokenizer"}}),
                                      {.mlm_probability = 0.1}),
      UsageError);
}

}  // namespace
}  // namespace accelerate::test
