// Texts that go on: what is chosen, when they end, and what is refused.
#include <ATen/ATen.h>
#include <accelerate/errors.h>
#include <accelerate/transformers/generation.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "transformers/decoder_models.h"
#include "transformers/fixed_model.h"

namespace accelerate::test {
namespace {

using testing::ElementsAre;
using transformers::generate;
using transformers::GenerationOptions;

TEST(Generation, TheBestTokenEachTimeUntilTheLengthIsReached) {
  FixedModel model = counting_model();
  EXPECT_THAT(rows_of(generate(model, texts_of({{1, 2}}), {.max_new_tokens = 4})),
              ElementsAre(ElementsAre(1, 2, 3, 4, 5, 6)));
  EXPECT_THAT(rows_of(generate(model, texts_of({{1, 2}}), {.max_length = 4})),
              ElementsAre(ElementsAre(1, 2, 3, 4)));
}

TEST(Generation, WithoutALengthThereAreTwentyTokensAtMostUpToTheLastPosition) {
  FixedModel model = counting_model();
  EXPECT_EQ(generate(model, texts_of({{1, 2}})).size(1), 22);
  model.config().set("max_position_embeddings", int64_t{10});
  EXPECT_EQ(generate(model, texts_of({{1, 2}})).size(1), 10);
  model.generation_config().set("max_length", int64_t{5});
  EXPECT_EQ(generate(model, texts_of({{1, 2}})).size(1), 5);
  model.generation_config().set("max_new_tokens", int64_t{2});
  EXPECT_EQ(generate(model, texts_of({{1, 2}})).size(1), 4);
  EXPECT_EQ(generate(model, texts_of({{1, 2}}), {.max_new_tokens = 7}).size(1), 9);
}

TEST(Generation, ATextEndsAtAnyEosAndIsFilledWithThePadToken) {
  FixedModel model = counting_model();
  const GenerationOptions options{
      .max_new_tokens = 6, .eos_token_ids = {{5, 8}}, .pad_token_id = 9};
  EXPECT_THAT(rows_of(generate(model, texts_of({{3}, {6}, {0}}), options)),
              ElementsAre(ElementsAre(3, 4, 5, 9, 9, 9), ElementsAre(6, 7, 8, 9, 9, 9),
                          ElementsAre(0, 1, 2, 3, 4, 5)));
}

TEST(Generation, WithoutAPadTokenTheFirstEosFills) {
  FixedModel model = counting_model();
  const GenerationOptions options{.max_new_tokens = 4, .eos_token_ids = {{8, 5}}};
  EXPECT_THAT(rows_of(generate(model, texts_of({{4}, {2}}), options)),
              ElementsAre(ElementsAre(4, 5, 8, 8), ElementsAre(2, 3, 4, 5)));
}

TEST(Generation, NoEosBeforeTheLeastNumberOfTokens) {
  FixedModel model = counting_model();
  GenerationOptions options{
      .max_new_tokens = 6, .min_new_tokens = 3, .eos_token_ids = {{3}}, .pad_token_id = 0};
  // Second best after 2 is 4; from then on the EOS does not come up.
  EXPECT_THAT(rows_of(generate(model, texts_of({{1}}), options)),
              ElementsAre(ElementsAre(1, 2, 4, 5, 6, 7, 8)));
  options.min_new_tokens = 1;
  EXPECT_THAT(rows_of(generate(model, texts_of({{1}}), options)),
              ElementsAre(ElementsAre(1, 2, 3)));
  model.generation_config().set("min_length", int64_t{3});
  options.min_new_tokens = std::nullopt;
  EXPECT_THAT(rows_of(generate(model, texts_of({{1}}), options)),
              ElementsAre(ElementsAre(1, 2, 4, 5, 6, 7, 8)));
}

TEST(Generation, TheModelsOwnSettingsCountUntilOthersAreGiven) {
  FixedModel model = counting_model();
  model.generation_config().set("eos_token_id", int64_t{4});
  model.generation_config().set("pad_token_id", int64_t{0});
  model.generation_config().set("max_new_tokens", int64_t{9});
  EXPECT_THAT(rows_of(generate(model, texts_of({{1}}))), ElementsAre(ElementsAre(1, 2, 3, 4)));
  EXPECT_EQ(generate(model, texts_of({{1}}), {.eos_token_ids = {{}}}).size(1), 10);
}

TEST(Generation, TokensAreHandedOutAsTheyComeAndMayBeTheLast) {
  FixedModel model = counting_model();
  std::vector<std::vector<int64_t>> seen;
  GenerationOptions options{.max_new_tokens = 5, .eos_token_ids = {{3}}, .pad_token_id = 0};
  options.on_tokens = [&](const at::Tensor& tokens) {
    seen.push_back(rows_of(tokens.unsqueeze(0))[0]);
    return seen.size() < 4;
  };
  EXPECT_THAT(rows_of(generate(model, texts_of({{1}, {4}}), options)),
              ElementsAre(ElementsAre(1, 2, 3, 0, 0), ElementsAre(4, 5, 6, 7, 8)));
  EXPECT_THAT(seen, ElementsAre(ElementsAre(2, 5), ElementsAre(3, 6), ElementsAre(0, 7),
                                ElementsAre(0, 8)));
}

TEST(Generation, ItRunsInEvalModeWithoutGradientsAndPutsTheModeBack) {
  FixedModel model = counting_model();
  model.train();
  const at::Tensor found = generate(model, texts_of({{1}}), {.max_new_tokens = 2});
  EXPECT_TRUE(model.is_training());
  EXPECT_FALSE(model.was_training);
  EXPECT_FALSE(model.had_gradients);
  EXPECT_FALSE(found.is_inference());
  model.eval();
  (void)generate(model, texts_of({{1}}), {.max_new_tokens = 1});
  EXPECT_FALSE(model.is_training());
}

TEST(Generation, AFrozenPartOfATrainedModelStaysFrozen) {
  const auto model = random_decoder(ModelTask::kCausalLm, small_gpt2());
  model->train();
  const auto body = model->named_children()["transformer"];
  body->eval();
  (void)generate(*model, {.input_ids = random_texts(1, 3)}, {.max_new_tokens = 2});
  EXPECT_TRUE(model->is_training());
  EXPECT_FALSE(body->is_training());
  model->eval();
  body->train();  // with dropout, were it left like that
  const at::Tensor first = generate(*model, {.input_ids = random_texts(1, 3)},
                                    {.max_new_tokens = 20, .min_new_tokens = 20});
  EXPECT_TRUE(at::equal(first, generate(*model, {.input_ids = random_texts(1, 3)},
                                        {.max_new_tokens = 20, .min_new_tokens = 20})));
  EXPECT_TRUE(body->is_training());
}

TEST(Generation, WhatIsCalledWithTokensIsOutsideOfIt) {
  FixedModel model = counting_model();
  GenerationOptions options{.max_new_tokens = 2};
  options.on_tokens = [&](const at::Tensor& tokens) {
    EXPECT_FALSE(tokens.is_inference());
    EXPECT_FALSE(at::InferenceMode::is_enabled());
    EXPECT_TRUE(at::GradMode::is_enabled());
    tokens.fill_(30);  // its own
    return true;
  };
  EXPECT_THAT(rows_of(generate(model, texts_of({{1}}), options)),
              ElementsAre(ElementsAre(1, 2, 3)));
  options.on_tokens = [&](const at::Tensor&) {
    EXPECT_FALSE(at::GradMode::is_enabled());
    return true;
  };
  const at::NoGradGuard no_gradient;
  (void)generate(model, texts_of({{1}}), options);
}

TEST(Generation, LongTextsGrowAndALimitFarAwayCostsNothing) {
  FixedModel model = counting_model(1000);
  const at::Tensor found = generate(
      model, texts_of({{1}}), {.max_new_tokens = int64_t{2000000000}, .eos_token_ids = {{900}}});
  EXPECT_TRUE(at::equal(found[0], at::arange(1, 901, at::kLong)));
  const auto llama = random_decoder(ModelTask::kCausalLm, small_llama());
  const std::vector<at::Tensor> prompts{random_texts(1, 3), random_texts(1, 9, 2)};
  const GenerationOptions options{.max_new_tokens = 300, .min_new_tokens = 300};
  const at::Tensor together = generate(*llama, left_padded(prompts), options);
  const at::Tensor alone = generate(*llama, {.input_ids = prompts[0]}, options);
  EXPECT_TRUE(at::equal(together[0].slice(0, 6), alone[0]));
}

TEST(Generation, EachStepGivesTheModelTheNewTokenAloneIfThereIsACache) {
  FixedModel model = counting_model();
  (void)generate(model, texts_of({{1, 2, 3}}), {.max_new_tokens = 3});
  EXPECT_THAT(model.given, ElementsAre(3, 1, 1));
  model.given.clear();
  (void)generate(model, texts_of({{1, 2, 3}}), {.max_new_tokens = 3, .use_cache = false});
  EXPECT_THAT(model.given, ElementsAre(3, 4, 5));
  EXPECT_FALSE(model.had_mask);
}

TEST(Generation, APromptGoesOnAloneAsItDoesInAPaddedBatch) {
  for (const std::string type : {"gpt2", "llama"}) {
    for (const bool use_cache : {true, false}) {
      SCOPED_TRACE(type);
      const auto model = random_decoder(ModelTask::kCausalLm, small_model(type));
      const std::vector<at::Tensor> prompts{random_texts(1, 3), random_texts(1, 9, 2),
                                            random_texts(1, 6, 3)};
      const GenerationOptions options{
          .max_new_tokens = 12, .min_new_tokens = 12, .use_cache = use_cache};
      const at::Tensor together = generate(*model, left_padded(prompts), options);
      for (size_t i = 0; i < prompts.size(); ++i) {
        const at::Tensor alone = generate(*model, {.input_ids = prompts[i]}, options);
        const at::Tensor row = together[static_cast<int64_t>(i)].slice(0, 9 - prompts[i].size(1));
        EXPECT_TRUE(at::equal(row, alone[0])) << i;
      }
    }
  }
}

TEST(Generation, PositionsAndTypesThatAreGivenGoOn) {
  const auto model = random_decoder(ModelTask::kCausalLm, small_gpt2());
  const at::Tensor ids = random_texts(1, 5);
  const at::Tensor positions = torch::tensor({{3, 4, 5, 6, 7}}, at::kLong);
  const at::Tensor types = at::full({1, 5}, 2, at::kLong);
  for (const bool use_cache : {true, false}) {
    at::Tensor wanted = ids;
    for (int64_t i = 0; i < 6; ++i) {  // the whole text each time
      const at::NoGradGuard no_gradient;
      const at::Tensor logits =
          model
              ->forward({.input_ids = wanted,
                         .token_type_ids = at::full({1, 5 + i}, 2, at::kLong),
                         .position_ids = at::arange(3, 8 + i, at::kLong).unsqueeze(0)})
              .logits.select(1, -1);
      logits.select(1, 1).fill_(-1e9);  // the EOS
      wanted = at::cat({wanted, logits.argmax(1, true)}, 1);
    }
    const at::Tensor found =
        generate(*model, {.input_ids = ids, .token_type_ids = types, .position_ids = positions},
                 {.max_new_tokens = 6, .min_new_tokens = 6, .use_cache = use_cache});
    EXPECT_TRUE(at::equal(found, wanted));
  }
}

TEST(Generation, PadTokensWithoutAMaskCountAsPaddingWhereTheyAreNoEos) {
  const auto model = random_decoder(ModelTask::kCausalLm, small_llama());
  const ModelInputs padded = left_padded({random_texts(1, 8), random_texts(1, 4, 2)});
  const GenerationOptions options{.max_new_tokens = 6, .min_new_tokens = 6};
  const at::Tensor with_mask = generate(*model, padded, options);
  EXPECT_TRUE(at::equal(generate(*model, {.input_ids = padded.input_ids}, options), with_mask));
}

TEST(Generation, ADecoderStartsWithItsTokenAndLooksAtTheEncoder) {
  const auto model = random_decoder(ModelTask::kSeq2SeqLm, small_t5());
  model->generation_config().set("decoder_start_token_id", int64_t{0});
  const at::Tensor ids = random_texts(2, 8);
  at::Tensor mask = at::ones_like(ids);
  mask[1].slice(0, 5).fill_(0);
  const GenerationOptions options{.max_new_tokens = 7, .min_new_tokens = 7};
  const at::Tensor both = generate(*model, {.input_ids = ids, .attention_mask = mask}, options);
  ASSERT_EQ(both.sizes().vec(), (std::vector<int64_t>{2, 8}));
  EXPECT_EQ(both.select(1, 0).abs().sum().item<int64_t>(), 0);
  const at::Tensor second =
      generate(*model, {.input_ids = ids.slice(0, 1).slice(1, 0, 5)}, options);
  EXPECT_TRUE(at::equal(both[1], second[0]));
  const at::Tensor go_on = generate(
      *model, {.input_ids = ids, .attention_mask = mask, .decoder_input_ids = both.slice(1, 0, 4)},
      {.max_new_tokens = 4, .min_new_tokens = 4});
  EXPECT_TRUE(at::equal(go_on, both));
}

TEST(Generation, WhatADecoderHasSaidMayBePadded) {
  const auto model = random_decoder(ModelTask::kSeq2SeqLm, small_t5());
  const at::Tensor ids = random_texts(1, 6);
  const at::Tensor said = at::cat({at::zeros({1, 1}, at::kLong), random_texts(1, 3, 7)}, 1);
  at::Tensor mask = at::ones_like(said);
  mask[0][1] = 0;
  ModelInputs inputs{.input_ids = ids, .decoder_input_ids = said, .decoder_attention_mask = mask};
  for (const bool use_cache : {true, false}) {
    const at::Tensor found = generate(
        *model, inputs, {.max_new_tokens = 4, .min_new_tokens = 4, .use_cache = use_cache});
    at::Tensor wanted = said;
    for (int64_t i = 0; i < 4; ++i) {
      const at::NoGradGuard no_gradient;
      const at::Tensor logits =
          model
              ->forward({.input_ids = ids,
                         .decoder_input_ids = wanted,
                         .decoder_attention_mask = at::cat({mask, at::ones({1, i}, at::kLong)}, 1)})
              .logits.select(1, -1);
      logits.select(1, 1).fill_(-1e9);  // the EOS
      wanted = at::cat({wanted, logits.argmax(1, true)}, 1);
    }
    EXPECT_TRUE(at::equal(found, wanted));
  }
}

void expect_refused(PretrainedModel& model, const ModelInputs& inputs,
                    const GenerationOptions& options, const std::string& message) {
  try {
    (void)generate(model, inputs, options);
    ADD_FAILURE() << "nothing was thrown: " << message;
  } catch (const UsageError& error) {
    EXPECT_EQ(error.message(), message);
  }
}

TEST(Generation, WhatMakesNoSenseIsRefused) {
  FixedModel model = counting_model();
  const ModelInputs prompt = texts_of({{1, 2}});
  expect_refused(model, prompt, {.max_new_tokens = 0},
                 "max_new_tokens is 0, but must be at least 1");
  expect_refused(model, prompt, {.max_length = 2},
                 "max_length is 2, but the prompt alone is as long as that: nothing would be "
                 "generated");
  expect_refused(model, prompt, {.min_new_tokens = -1},
                 "min_new_tokens is -1, but must be 0 or more");
  expect_refused(model, prompt, {.do_sample = true, .temperature = 0.0},
                 "temperature is 0, but must be above 0");
  expect_refused(model, prompt, {.do_sample = true, .top_k = -1},
                 "top_k is -1, but must be 0, for all tokens, or more");
  for (const double top_p : {0.0, 1.5}) {
    expect_refused(model, prompt, {.do_sample = true, .top_p = top_p},
                   std::string("top_p is ") + (top_p == 0 ? "0" : "1.5") +
                       ", but must be above 0 and at most 1");
  }
  expect_refused(model, prompt, {.repetition_penalty = 0.0},
                 "repetition_penalty is 0, but must be above 0");
  expect_refused(model, prompt, {.eos_token_ids = {{-1}}},
                 "eos_token_ids is -1, but tokens are not negative");
  expect_refused(model, prompt, {.pad_token_id = -1},
                 "pad_token_id is -1, but tokens are not negative");
  expect_refused(model, {}, {}, "input_ids must be int64 [batch, positions], and not empty");
}

TEST(Generation, WhatTheFileSaysWronglyIsAnErrorOfTheFile) {
  const ModelInputs prompt = texts_of({{1, 2}});
  const auto refused = [&](const char* key, transformers::ConfigValue value) -> std::string {
    FixedModel model = counting_model();
    model.generation_config() =
        ModelConfig::from_json(R"({"do_sample": true})", "generation_config.json");
    model.generation_config().set(key, std::move(value));
    try {
      (void)generate(model, prompt, {});
      return "nothing was thrown";
    } catch (const DataError& error) {
      return error.message();
    }
  };
  EXPECT_EQ(refused("temperature", 0.0),
            "'temperature' in generation_config.json is 0, but must be above 0");
  EXPECT_EQ(refused("top_k", int64_t{-2}),
            "'top_k' in generation_config.json is -2, but must be 0, for all tokens, or more");
  EXPECT_EQ(refused("top_p", 2.0),
            "'top_p' in generation_config.json is 2, but must be above 0 and at most 1");
  EXPECT_EQ(refused("max_new_tokens", std::numeric_limits<int64_t>::max()),
            "'max_new_tokens' in generation_config.json is 9223372036854775807, but a text has at "
            "most 2147483647 tokens");
  EXPECT_EQ(refused("max_length", int64_t{1000000000000}),
            "'max_length' in generation_config.json is 1000000000000, but a text has at most "
            "2147483647 tokens");
  EXPECT_EQ(refused("min_new_tokens", std::numeric_limits<int64_t>::max()),
            "'min_new_tokens' in generation_config.json is 9223372036854775807, but a text has at "
            "most 2147483647 tokens");
  // As in files that are around: there is no such token.
  EXPECT_EQ(refused("pad_token_id", int64_t{-1}), "nothing was thrown");
  EXPECT_EQ(refused("eos_token_id", int64_t{-1}), "nothing was thrown");
  EXPECT_EQ(refused("top_p", 0.0), "nothing was thrown");
}

TEST(Generation, WhatIsNotFollowedIsSaidOnce) {
  FixedModel model = counting_model();
  model.generation_config().set("num_beams", int64_t{4});
  model.generation_config().set("min_p", 0.1);
  model.generation_config().set("typical_p", 1.0);  // as if it were not there
  testing::internal::CaptureStderr();
  (void)generate(model, texts_of({{1}}), {.max_new_tokens = 1});
  EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::HasSubstr(": num_beams min_p\n"));
  testing::internal::CaptureStderr();
  (void)generate(model, texts_of({{1}}), {.max_new_tokens = 1});
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(Generation, WhatWouldRunOutOfPositionsIsRefusedBeforeTheFirstToken) {
  const auto model = random_decoder(ModelTask::kCausalLm, small_gpt2());
  GenerationOptions options{.max_new_tokens = 30, .on_tokens = [](const at::Tensor&) {
                              ADD_FAILURE() << "a token";
                              return true;
                            }};
  const ModelInputs prompt{.input_ids = random_texts(1, 4)};
  expect_refused(*model, prompt, options,
                 "prompts of 4 positions and 30 new tokens need 33 positions, GPT2LMHeadModel has "
                 "32");
  const ModelInputs padded = left_padded({random_texts(1, 4), random_texts(1, 6)});
  expect_refused(*model, padded, options,
                 "prompts of 6 positions and 30 new tokens need 35 positions, GPT2LMHeadModel has "
                 "32");
  expect_refused(*model, {.input_ids = random_texts(1, 33)}, options,
                 "prompts of 33 positions for GPT2LMHeadModel, which has 32");
  // The last token has no position any more, and padding takes none.
  options = {.max_new_tokens = 29, .eos_token_ids = {{}}};
  EXPECT_EQ(generate(*model, prompt, options).size(1), 33);
  options = {.max_length = 33, .eos_token_ids = {{}}};
  EXPECT_EQ(generate(*model, padded, options).size(1), 33);
  options.use_cache = false;
  EXPECT_EQ(generate(*model, padded, options).size(1), 33);
}

TEST(Generation, APadTokenThatTheModelDoesNotHaveIsRefusedBeforeItIsNeeded) {
  const auto model = random_decoder(ModelTask::kCausalLm, small_gpt2());
  GenerationOptions options{.max_new_tokens = 3, .eos_token_ids = {{1}}, .pad_token_id = 40};
  expect_refused(*model, {.input_ids = random_texts(2, 4)}, options,
                 "texts that have ended are filled with the pad token 40, but the model has 40 "
                 "tokens");
  EXPECT_NO_THROW((void)generate(*model, {.input_ids = random_texts(1, 4)}, options));
  options.eos_token_ids = {{}};
  EXPECT_NO_THROW((void)generate(*model, {.input_ids = random_texts(2, 4)}, options));
  expect_refused(*model, {.input_ids = at::full({1, 4}, 40)}, options,
                 "input_ids has 40; the model has 40 tokens, from 0 to 39");
}

TEST(Generation, ALengthOfTheFileEndsWithThePositions) {
  const auto model = random_decoder(ModelTask::kCausalLm, small_gpt2());
  model->generation_config().set("max_length", int64_t{1000});
  const GenerationOptions options{.eos_token_ids = {{}}};
  EXPECT_EQ(generate(*model, {.input_ids = random_texts(1, 4)}, options).size(1), 33);
  EXPECT_EQ(
      generate(*model, left_padded({random_texts(1, 4), random_texts(1, 6)}), options).size(1), 33);
}

TEST(Generation, WhatADecoderHasSaidMustFitTheBatch) {
  const auto model = random_decoder(ModelTask::kSeq2SeqLm, small_t5());
  const at::Tensor ids = random_texts(3, 4);
  expect_refused(*model, {.input_ids = ids, .decoder_input_ids = random_texts(1, 4)}, {},
                 "decoder_input_ids must be int64 [batch, positions] for the batch of input_ids, "
                 "and not empty");
  expect_refused(*model, {.input_ids = ids, .decoder_attention_mask = at::ones({3, 1}, at::kLong)},
                 {}, "decoder_attention_mask must have the shape of decoder_input_ids");
}

TEST(Generation, PaddingOnTheRightIsRefused) {
  FixedModel model = counting_model();
  ModelInputs inputs = texts_of({{1, 2}, {3, 0}});
  inputs.attention_mask = torch::tensor({{1, 1}, {1, 0}}, at::kLong);
  expect_refused(model, inputs, {},
                 "a prompt is padded on the right: the text would go on after the padding");
  inputs.attention_mask = at::ones({2, 3}, at::kLong);
  expect_refused(model, inputs, {}, "attention_mask must have the shape of input_ids");
}

TEST(Generation, AModelThatDoesNotPredictTokensIsRefused) {
  const auto model = random_decoder(ModelTask::kBase, small_gpt2());
  expect_refused(*model, {.input_ids = random_texts(1, 3)}, {},
                 "GPT2Model cannot generate texts: it does not predict the next token");
}

}  // namespace
}  // namespace accelerate::test
