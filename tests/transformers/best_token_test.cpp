// The best token by a matrix of bytes: the same as by all scores.
#include "transformers/generation/best_token.h"

#include <ATen/ATen.h>
#include <accelerate/transformers/generation.h>
#include <gtest/gtest.h>

#include <limits>

#include "transformers/decoder_models.h"
#include "transformers/fixed_model.h"

namespace accelerate::test {
namespace {

using transformers::BestToken;

std::vector<int64_t> exact(const at::Tensor& matrix, const at::Tensor& features) {
  const at::Tensor scores = features.to(at::kDouble).matmul(matrix.to(at::kDouble).t());
  return rows_of(scores.argmax(1).unsqueeze(0))[0];
}

std::vector<int64_t> chosen(const BestToken& best, const at::Tensor& features,
                            const std::vector<int64_t>& forbidden = {}) {
  return rows_of(best.choose(features, forbidden).unsqueeze(0))[0];
}

TEST(BestToken, IsTheArgmaxOfTheTrueScores) {
  for (const int64_t width : {1, 7, 64, 100, 384}) {
    SCOPED_TRACE(width);
    at::manual_seed(static_cast<uint64_t>(width));
    const at::Tensor matrix = at::randn({5000, width});
    const BestToken best(matrix);
    for (int run = 0; run < 20; ++run) {
      const at::Tensor features = at::randn({3, width});
      EXPECT_EQ(chosen(best, features), exact(matrix, features));
    }
  }
}

TEST(BestToken, IsTheArgmaxWhereBytesCannotTellRowsApart) {
  at::manual_seed(2);
  // All rows are nearly the same, and one large value takes most of the bytes' range.
  at::Tensor matrix = at::ones({3000, 64}) + 1e-3 * at::randn({3000, 64});
  matrix.select(1, 5).fill_(1000);
  const BestToken best(matrix);
  for (int run = 0; run < 20; ++run) {
    at::Tensor features = at::randn({2, 64});
    features.select(1, 5).fill_(0);
    EXPECT_EQ(chosen(best, features), exact(matrix, features));
  }
}

TEST(BestToken, RowsOfVeryDifferentSizesAreComparedFairly) {
  at::manual_seed(3);
  const at::Tensor matrix = at::randn({4000, 48}) * at::logspace(-6, 6, 4000).unsqueeze(1);
  const BestToken best(matrix);
  for (int run = 0; run < 20; ++run) {
    const at::Tensor features = at::randn({1, 48});
    EXPECT_EQ(chosen(best, features), exact(matrix, features));
  }
}

TEST(BestToken, OfEqualsTheFirstIsChosenAndForbiddenOnesNever) {
  at::Tensor matrix = at::zeros({100, 16});
  matrix[40].fill_(1);
  matrix[70].fill_(1);
  const BestToken best(matrix);
  const at::Tensor features = at::ones({1, 16});
  EXPECT_EQ(chosen(best, features), std::vector<int64_t>{40});
  EXPECT_EQ(chosen(best, features, {40}), std::vector<int64_t>{70});
  EXPECT_EQ(chosen(best, features, {40, 70}), std::vector<int64_t>{0});
  EXPECT_EQ(chosen(best, -features), std::vector<int64_t>{0});
}

TEST(BestToken, WhatIsNoNumberIsLeftToArgmax) {
  at::manual_seed(4);
  at::Tensor matrix = at::randn({50, 16});
  matrix[9][3] = std::numeric_limits<float>::infinity();
  const BestToken best(matrix);
  EXPECT_EQ(chosen(best, at::ones({1, 16})), std::vector<int64_t>{9});
  const at::Tensor nothing = at::full({1, 16}, std::numeric_limits<float>::quiet_NaN());
  EXPECT_EQ(chosen(best, nothing), std::vector<int64_t>{0});
}

TEST(BestToken, IsUsedForLargeVocabulariesAndLongTextsOnTheCpuAlone) {
  const at::Tensor large = at::zeros({8192, 128});
  EXPECT_TRUE(BestToken::fits(large, 1, 64));
  EXPECT_FALSE(BestToken::fits(large, 1, 4));
  EXPECT_FALSE(BestToken::fits(large, 8, 64));
  EXPECT_FALSE(BestToken::fits(at::zeros({100, 128}), 1, 64));
  EXPECT_FALSE(BestToken::fits(large.to(at::kBFloat16), 1, 64));
  EXPECT_FALSE(BestToken::fits(large.t(), 1, 64));
}

TEST(BestToken, TextsAreThoseOfAllScores) {
  for (const std::string type : {"gpt2", "llama", "t5"}) {
    SCOPED_TRACE(type);
    ModelConfig config = small_model(type);
    config.set("vocab_size", int64_t{70000});
    if (type == "gpt2") config.set("n_positions", int64_t{64});
    const auto task = type == "t5" ? ModelTask::kSeq2SeqLm : ModelTask::kCausalLm;
    const auto model = random_decoder(task, config);
    const ModelInputs prompts = left_padded({random_texts(1, 4), random_texts(1, 6, 2)});
    transformers::GenerationOptions options{
        .max_new_tokens = 24, .min_new_tokens = 10, .decoder_start_token_id = 0};
    const at::Tensor fast = generate(*model, prompts, options);
    options.repetition_penalty = 1 + 1e-12;  // makes all scores
    EXPECT_TRUE(at::equal(fast, generate(*model, prompts, options)));
  }
}

}  // namespace
}  // namespace accelerate::test
