// How the next token is drawn: which remain, and how often each comes.
#include <ATen/ATen.h>
#include <accelerate/transformers/generation.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <limits>

#include "transformers/fixed_model.h"
#include "transformers/generation/scores.h"

namespace accelerate::test {
namespace {

using testing::ElementsAre;
using transformers::generate;
using transformers::GenerationOptions;
using transformers::GenerationSettings;

at::Tensor row_of(const std::vector<float>& scores) { return at::tensor(scores).unsqueeze(0); }

at::Tensor log_of(const std::vector<float>& probabilities) {
  return at::log(row_of(probabilities));
}

std::vector<int64_t> kept(const at::Tensor& scores) {
  const at::Tensor places = (scores[0] > -std::numeric_limits<float>::infinity()).nonzero();
  return {places.data_ptr<int64_t>(), places.data_ptr<int64_t>() + places.numel()};
}

TEST(TopK, KeepsTheBestAndAllThatAreAsGoodAsTheLastOfThem) {
  const auto top = [](const std::vector<float>& scores, int64_t k) {
    at::Tensor own = row_of(scores);
    transformers::keep_top_k(own, k);
    return kept(own);
  };
  EXPECT_THAT(top({1, 4, 2, 3}, 2), ElementsAre(1, 3));
  EXPECT_THAT(top({3, 4, 3, 3, 1}, 2), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(top({1, 4, 2}, 1), ElementsAre(1));
  EXPECT_THAT(top({1, 4, 2}, 50), ElementsAre(0, 1, 2));
}

TEST(TopP, KeepsTheFewestLikeliestThatAddUpToIt) {
  const auto top = [](const std::vector<float>& probabilities, double p) {
    at::Tensor own = log_of(probabilities);
    transformers::keep_top_p(own, p);
    return kept(own);
  };
  const std::vector<float> probabilities{0.1F, 0.4F, 0.3F, 0.2F};
  EXPECT_THAT(top(probabilities, 0.35), ElementsAre(1));
  EXPECT_THAT(top(probabilities, 0.45), ElementsAre(1, 2));
  EXPECT_THAT(top(probabilities, 0.75), ElementsAre(1, 2, 3));
  EXPECT_THAT(top(probabilities, 0.95), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(top(probabilities, 1e-9), ElementsAre(1));  // never none
  // Of equals the later ones are kept: sorting leaves them in order, and the last are the
  // likeliest.
  EXPECT_THAT(top({0.25F, 0.25F, 0.25F, 0.25F}, 0.6), ElementsAre(1, 2, 3));
}

TEST(Repetition, SeenTokensAreDividedOrMultipliedOnceEach) {
  at::Tensor scores = torch::tensor({{2.0F, -2.0F, 4.0F, 1.0F}, {2.0F, -2.0F, 4.0F, 1.0F}});
  transformers::penalise_repetition(scores, torch::tensor({{0, 0, 1}, {2, 3, 2}}, at::kLong), 2.0);
  EXPECT_TRUE(
      at::equal(scores, torch::tensor({{1.0F, -4.0F, 4.0F, 1.0F}, {2.0F, -2.0F, 2.0F, 0.5F}})));
}

TEST(Scores, AreProcessedInTheOrderOfTheReference) {
  // Penalty: 3 becomes 1.5. No EOS (token 3). Temperature 0.5 doubles. Top-k 3 of {3, 4, 1, -1}
  // leaves {3, 4, 1}; top-p then drops what is below 10 %.
  at::Tensor scores = row_of({3, 2, 0.5, 9, -0.5});
  const GenerationSettings settings{.min_length = 2,
                                    .do_sample = true,
                                    .temperature = 0.5,
                                    .top_k = 3,
                                    .top_p = 0.9,
                                    .repetition_penalty = 2.0,
                                    .eos_token_ids = {3}};
  transformers::process_scores(scores, torch::tensor({{0}}, at::kLong), settings);
  EXPECT_THAT(kept(scores), ElementsAre(0, 1));
  EXPECT_FLOAT_EQ(scores[0][0].item<float>(), 3);
  EXPECT_FLOAT_EQ(scores[0][1].item<float>(), 4);
}

TEST(Scores, OfTheBestTokenAreNotWarped) {
  at::Tensor scores = row_of({3, 2, 1});
  transformers::process_scores(scores, torch::tensor({{0}}, at::kLong),
                               {.temperature = 0.5, .top_k = 1, .top_p = 0.1});
  EXPECT_TRUE(at::equal(scores, row_of({3, 2, 1})));
}

// How often each token comes after token 0, in one batch of `draws` texts.
std::vector<double> frequencies(const at::Tensor& scores, GenerationOptions options,
                                int64_t draws = 20000) {
  FixedModel model(scores.expand({scores.size(1), -1}));
  options.max_new_tokens = 1;
  options.do_sample = true;
  options.seed = 11;
  const at::Tensor prompts = at::zeros({draws, 1}, at::kLong);
  const at::Tensor counts =
      at::bincount(generate(model, {.input_ids = prompts}, options).select(1, 1), {},
                   scores.size(1))
          .to(at::kDouble) /
      draws;
  return {counts.data_ptr<double>(), counts.data_ptr<double>() + counts.numel()};
}

void expect_close(const std::vector<double>& found, const std::vector<double>& exact) {
  ASSERT_EQ(found.size(), exact.size());
  for (size_t i = 0; i < exact.size(); ++i) {
    // Five deviations of a share of 20,000 draws.
    EXPECT_NEAR(found[i], exact[i], 5 * std::sqrt(exact[i] * (1 - exact[i]) / 20000)) << i;
  }
}

TEST(Sampling, EachTokenComesAsOftenAsItsProbabilitySays) {
  expect_close(frequencies(log_of({0.5F, 0.3F, 0.15F, 0.05F}), {}), {0.5, 0.3, 0.15, 0.05});
}

TEST(Sampling, TemperatureSharpensAndFlattens) {
  // Probabilities to the power of one over the temperature, normed.
  expect_close(frequencies(log_of({0.5F, 0.3F, 0.2F}), {.temperature = 0.5}),
               {0.25 / 0.38, 0.09 / 0.38, 0.04 / 0.38});
  const double roots = std::sqrt(0.5) + std::sqrt(0.3) + std::sqrt(0.2);
  expect_close(frequencies(log_of({0.5F, 0.3F, 0.2F}), {.temperature = 2.0}),
               {std::sqrt(0.5) / roots, std::sqrt(0.3) / roots, std::sqrt(0.2) / roots});
}

TEST(Sampling, WhatIsCutOffNeverComesAndTheRestShareIt) {
  expect_close(frequencies(log_of({0.5F, 0.3F, 0.15F, 0.05F}), {.top_k = 2}), {0.625, 0.375, 0, 0});
  expect_close(frequencies(log_of({0.5F, 0.3F, 0.15F, 0.05F}), {.top_p = 0.9}),
               {0.5 / 0.95, 0.3 / 0.95, 0.15 / 0.95, 0});
}

TEST(Sampling, TheFiftyBestRemainUnlessToldOtherwise) {
  const at::Tensor flat = at::linspace(0, 0.01, 100).unsqueeze(0);
  const auto found = frequencies(flat, {});
  for (size_t i = 0; i < 50; ++i) EXPECT_EQ(found[i], 0) << i;
  for (size_t i = 50; i < 100; ++i) EXPECT_GT(found[i], 0) << i;
  const auto all = frequencies(flat, {.top_k = 0});
  EXPECT_GT(*std::ranges::min_element(all), 0);
}

TEST(Sampling, TheSameSeedGivesTheSameTextsAndAnotherSeedOthers) {
  at::manual_seed(4);
  FixedModel model(at::randn({30, 30}));
  const auto text = [&](uint64_t seed) {
    return generate(model, texts_of({{1}, {2}}),
                    {.max_new_tokens = 30, .do_sample = true, .seed = seed});
  };
  const at::Tensor first = text(1);
  at::manual_seed(99);
  EXPECT_TRUE(at::equal(text(1), first));
  EXPECT_FALSE(at::equal(text(2), first));
}

TEST(Sampling, WithoutASeedTheDefaultGeneratorIsUsed) {
  at::manual_seed(4);
  FixedModel model(at::randn({30, 30}));
  const auto text = [&] {
    return generate(model, texts_of({{1}}), {.max_new_tokens = 30, .do_sample = true});
  };
  at::manual_seed(5);
  const at::Tensor first = text();
  EXPECT_FALSE(at::equal(text(), first));
  at::manual_seed(5);
  EXPECT_TRUE(at::equal(text(), first));
}

TEST(Sampling, ARepetitionPenaltyMakesTheBestTokenAnother) {
  FixedModel model = counting_model(4);
  // Scores after i: 1 less for each step; all seen tokens count twice as badly.
  EXPECT_THAT(
      rows_of(generate(model, texts_of({{0}}), {.max_new_tokens = 4, .repetition_penalty = 4.0})),
      ElementsAre(ElementsAre(0, 1, 2, 3, 0)));
  EXPECT_THAT(rows_of(generate(model, texts_of({{0, 1}}),
                               {.max_new_tokens = 1, .repetition_penalty = 0.2})),
              ElementsAre(ElementsAre(0, 1, 0)));
}

}  // namespace
}  // namespace accelerate::test
