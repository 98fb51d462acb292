// resize_token_embeddings(): rows for more tokens, or for fewer.
#include <accelerate/errors.h>
#include <accelerate/transformers/auto_model.h>
#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "transformers/checkpoints.h"
#include "transformers/decoder_models.h"
#include "transformers/fixed_model.h"

namespace accelerate::test {
namespace {

using testing::HasSubstr;

struct Kind {
  std::string type{};
  ModelTask task = ModelTask::kBase;
  bool tied = true;
};

std::vector<Kind> kinds() {
  std::vector<Kind> all;
  for (const std::string type : {"bert", "roberta", "distilbert"}) {
    for (const auto task : {ModelTask::kBase, ModelTask::kSequenceClassification,
                            ModelTask::kTokenClassification, ModelTask::kMaskedLm}) {
      all.push_back({type, task});
    }
    all.push_back({type, ModelTask::kMaskedLm, false});
  }
  for (const std::string type : {"gpt2", "llama"}) {
    for (const auto task :
         {ModelTask::kBase, ModelTask::kSequenceClassification, ModelTask::kCausalLm}) {
      all.push_back({type, task});
    }
    all.push_back({type, ModelTask::kCausalLm, false});
  }
  for (const auto task : {ModelTask::kBase, ModelTask::kSequenceClassification,
                          ModelTask::kTokenClassification, ModelTask::kSeq2SeqLm}) {
    all.push_back({"t5", task});
  }
  return all;
}

std::shared_ptr<PretrainedModel> model_of(const Kind& kind) {
  ModelConfig config = small_model(kind.type);
  if (kind.type != "t5") config.set("tie_word_embeddings", kind.tied);
  return random_decoder(kind.task, config);
}

// Ends with an EOS, by which T5 classifies.
ModelInputs inputs_of(const Kind& kind) {
  ModelInputs inputs{.input_ids = random_texts(2, 6)};
  inputs.input_ids.select(1, 5).fill_(1);
  if (kind.type == "t5") inputs.decoder_input_ids = inputs.input_ids.clone();
  return inputs;
}

at::Tensor answer_of(PretrainedModel& model, const ModelInputs& inputs) {
  const transformers::ModelOutput output = model.forward(inputs);
  return output.logits.defined() ? output.logits : output.last_hidden_state;
}

bool speaks(const Kind& kind) {
  return kind.task == ModelTask::kCausalLm || kind.task == ModelTask::kMaskedLm ||
         kind.task == ModelTask::kSeq2SeqLm;
}

TEST(ResizeTokenEmbeddings, OldTokensMeanWhatTheyMeantInAllModels) {
  const at::NoGradGuard no_gradient;
  for (const Kind& kind : kinds()) {
    const auto model = model_of(kind);
    SCOPED_TRACE(model->architecture() + (kind.tied ? "" : ", not tied"));
    const ModelInputs inputs = inputs_of(kind);
    const at::Tensor before = answer_of(*model, inputs);
    EXPECT_EQ(model->resize_token_embeddings(43), 43);
    EXPECT_EQ(model->config().size("vocab_size"), 43);
    at::Tensor after = answer_of(*model, inputs);
    if (speaks(kind)) {
      EXPECT_EQ(after.size(-1), 43);
      after = after.slice(-1, 0, 40);
    }
    EXPECT_TRUE(at::allclose(before, after, 1e-5, 1e-6));
    // The new tokens can be read and, by models that speak, said.
    ModelInputs last = inputs;
    last.input_ids = inputs.input_ids.clone();
    last.input_ids.select(1, 0).fill_(42);
    if (speaks(kind) && kind.type != "t5") last.labels = last.input_ids;
    EXPECT_NO_THROW((void)model->forward(last));
    EXPECT_EQ(model->resize_token_embeddings(38), 38);
    last.input_ids.clamp_max_(37);
    last.labels = at::Tensor();
    if (last.decoder_input_ids.defined()) last.decoder_input_ids.clamp_max_(37);
    EXPECT_NO_THROW((void)model->forward(last));
  }
}

TEST(ResizeTokenEmbeddings, ASavedModelComesBackAsItIs) {
  for (const Kind& kind : kinds()) {
    const auto model = model_of(kind);
    SCOPED_TRACE(model->architecture() + (kind.tied ? "" : ", not tied"));
    model->resize_token_embeddings(41, {.pad_to_multiple_of = 8});
    const CheckpointFolder folder;
    transformers::save_pretrained(*model, folder.path());
    const auto loaded = transformers::load_pretrained(
        kind.task, folder.text(), {.report = [](const transformers::PretrainedReport& report) {
          EXPECT_EQ(report.message, "");
        }});
    EXPECT_EQ(loaded->config().size("vocab_size"), 48);
    expect_same_state(*loaded, *model);
  }
}

TEST(ResizeTokenEmbeddings, NewRowsAreTheMeanOfTheOldOnesWithALittleDifference) {
  ModelConfig config = small_bert();
  config.set("tie_word_embeddings", false);
  const auto model = random_decoder(ModelTask::kMaskedLm, config);
  const at::NoGradGuard no_gradient;
  at::Tensor words = model->named_parameters()["bert.embeddings.word_embeddings.weight"];
  at::Tensor bias = model->named_parameters()["cls.predictions.bias"];
  const at::Tensor old = words.clone();
  const at::Tensor old_bias = bias.clone();
  model->resize_token_embeddings(240);
  ASSERT_EQ(words.size(0), 240);  // the parameter is still the same object
  const at::Tensor added = words.slice(0, 40);
  const at::Tensor mean = old.mean(0);
  EXPECT_TRUE(at::equal(words.slice(0, 0, 40), old));
  EXPECT_TRUE(at::allclose(added, mean.expand_as(added), 0, 1e-3));
  EXPECT_GT((added[0] - added[1]).abs().max().item<double>(), 0.0);
  // A billionth of the variance of the old ones.
  const double expected = old.var(0, false).mean().item<double>() * 1e-9;
  const double found = (added - mean).square().mean().item<double>();
  EXPECT_GT(found, 0.8 * expected);
  EXPECT_LT(found, 1.2 * expected);
  EXPECT_TRUE(at::equal(bias.slice(0, 0, 40), old_bias));
  EXPECT_TRUE(at::allclose(bias.slice(0, 40), old_bias.mean().expand({200})));
}

// Python's rule.
TEST(ResizeTokenEmbeddings, NewBiasesOfATiedHeadAreZero) {
  const auto model = random_decoder(ModelTask::kMaskedLm, small_bert());
  const at::Tensor bias = model->named_parameters()["cls.predictions.bias"].detach();
  const at::Tensor old = bias.clone();
  model->resize_token_embeddings(45);
  const at::Tensor now = model->named_parameters()["cls.predictions.bias"].detach();
  EXPECT_TRUE(at::equal(now, at::cat({old, at::zeros({5})})));
}

TEST(ResizeTokenEmbeddings, NewRowsBeginLikeThoseOfANewModelIfWished) {
  const auto model = random_decoder(ModelTask::kCausalLm, small_gpt2());
  at::Tensor words = model->named_parameters()["transformer.wte.weight"];
  const at::Tensor old = words.detach().clone();
  model->resize_token_embeddings(1040, {.mean_resizing = false});
  EXPECT_TRUE(at::equal(words.detach().slice(0, 0, 40), old));
  const at::Tensor added = words.detach().slice(0, 40);
  EXPECT_NEAR(added.std().item<double>(), 0.3, 0.02);
  EXPECT_NEAR(added.mean().item<double>(), 0.0, 0.02);
}

TEST(ResizeTokenEmbeddings, TrainingGoesOnWithTheNewRows) {
  const auto model = random_decoder(ModelTask::kCausalLm, small_gpt2());
  const ModelInputs before{.input_ids = random_texts(2, 6), .labels = random_texts(2, 6)};
  model->forward(before).loss.backward();
  model->resize_token_embeddings(44);
  const at::Tensor words = model->named_parameters()["transformer.wte.weight"];
  EXPECT_TRUE(words.requires_grad());
  EXPECT_FALSE(words.grad().defined());
  const at::Tensor ids = at::full({1, 4}, 43);
  model->forward({.input_ids = ids, .labels = ids}).loss.backward();
  EXPECT_THAT(words.grad().sizes(), testing::ElementsAre(44, 16));
  EXPECT_GT(words.grad()[43].abs().sum().item<double>(), 0.0);
}

TEST(ResizeTokenEmbeddings, ATypeOfHalfThePrecisionIsKept) {
  const auto model = random_decoder(ModelTask::kCausalLm, small_llama());
  model->to(at::kBFloat16);
  model->resize_token_embeddings(50);
  for (const auto& item : model->named_parameters()) {
    EXPECT_EQ(item.value().scalar_type(), at::kBFloat16) << item.key();
  }
}

TEST(ResizeTokenEmbeddings, WhatMakesNoSenseIsRefused) {
  const auto model = random_decoder(ModelTask::kBase, small_bert());
  const auto said = [&](int64_t count, int64_t multiple) {
    return error_from<UsageError>(
        [&] { model->resize_token_embeddings(count, {.pad_to_multiple_of = multiple}); });
  };
  EXPECT_THAT(said(0, 0), HasSubstr("a vocabulary cannot have 0 tokens"));
  EXPECT_THAT(said(-5, 0), HasSubstr("a vocabulary cannot have -5 tokens"));
  EXPECT_THAT(said(2147483648, 0), HasSubstr("a vocabulary cannot have 2147483648 tokens"));
  EXPECT_THAT(said(2147483647, 2), HasSubstr("a vocabulary cannot have 2147483648 tokens"));
  EXPECT_THAT(said(40, -1), HasSubstr("pad_to_multiple_of is -1; it should be 0 or more"));
  EXPECT_EQ(model->config().size("vocab_size"), 40);
  FixedModel other = counting_model();
  EXPECT_THAT(error_from<UsageError>([&] { other.resize_token_embeddings(5); }),
              HasSubstr("FixedModel does not say which parameters have a row for each token"));
}

}  // namespace
}  // namespace accelerate::test
