// BERT, DistilBERT and RoBERTa: padding, dropout, hidden states, heads and what they refuse.
#include <accelerate/errors.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "transformers/encoder_models.h"

namespace accelerate::test {
namespace {

using transformers::ForwardOptions;
using transformers::ModelOutput;

const std::vector<std::string> kTypes{"bert", "distilbert", "roberta"};

template <class E>
auto throws_error(const std::string& text) {
  return testing::ThrowsMessage<E>(testing::HasSubstr(text));
}

class Encoders : public testing::TestWithParam<std::string> {
 protected:
  std::shared_ptr<PretrainedModel> evaluated(ModelTask task) const {
    auto model = random_model(task, small_model(GetParam()));
    model->eval();
    return model;
  }
  int64_t padding() const { return GetParam() == "roberta" ? 1 : 0; }
};
INSTANTIATE_TEST_SUITE_P(All, Encoders, testing::ValuesIn(kTypes),
                         [](const auto& info) { return info.param; });

void expect_close(const at::Tensor& actual, const at::Tensor& expected) {
  ASSERT_EQ(actual.sizes().vec(), expected.sizes().vec());
  EXPECT_LE((actual - expected).abs().max().item<double>(), 1e-5);
}

TEST_P(Encoders, PaddingOnTheRightChangesNothing) {
  const auto model = evaluated(ModelTask::kBase);
  const at::Tensor text = random_texts(2, 6);
  const at::Tensor pad = at::full({2, 3}, padding(), at::kLong);
  const at::Tensor mask = at::cat({at::ones({2, 6}, at::kLong), at::zeros({2, 3}, at::kLong)}, 1);
  const at::Tensor padded =
      model->forward({.input_ids = at::cat({text, pad}, 1), .attention_mask = mask})
          .last_hidden_state;
  expect_close(padded.slice(1, 0, 6), model->forward({.input_ids = text}).last_hidden_state);
}

TEST_P(Encoders, PaddingOnTheLeftChangesNothingWherePositionsAreGiven) {
  const auto model = evaluated(ModelTask::kBase);
  const at::Tensor text = random_texts(2, 6);
  ModelInputs padded{.input_ids = at::cat({at::full({2, 3}, padding(), at::kLong), text}, 1)};
  padded.attention_mask = at::cat({at::zeros({2, 3}, at::kLong), at::ones({2, 6}, at::kLong)}, 1);
  // RoBERTa finds out by itself.
  if (GetParam() != "roberta") padded.position_ids = (padded.attention_mask.cumsum(1) - 1).clamp(0);
  expect_close(model->forward(padded).last_hidden_state.slice(1, 3),
               model->forward({.input_ids = text}).last_hidden_state);
}

TEST_P(Encoders, AMaskOfOnesIsNoMask) {
  const auto model = evaluated(ModelTask::kBase);
  const at::Tensor text = random_texts(2, 6);
  EXPECT_TRUE(model->forward({.input_ids = text, .attention_mask = at::ones_like(text)})
                  .last_hidden_state.equal(model->forward({.input_ids = text}).last_hidden_state));
}

TEST_P(Encoders, DropoutIsAtWorkInTrainingAlone) {
  auto model = random_model(ModelTask::kBase, small_model(GetParam()));
  const ModelInputs inputs{.input_ids = random_texts(2, 6)};
  const auto run = [&] { return model->forward(inputs).last_hidden_state; };
  EXPECT_FALSE(run().equal(run()));
  model->eval();
  const at::Tensor evaluated = run();
  EXPECT_TRUE(evaluated.equal(run()));

  ModelConfig config = small_model(GetParam());
  set_all_dropout(config, 0.0);
  model = random_model(ModelTask::kBase, config);
  EXPECT_TRUE(model->is_training());
  expect_close(run(), evaluated);
}

TEST_P(Encoders, HiddenStatesBeginWithTheEmbeddingsAndEndWithTheLastLayer) {
  const auto model = evaluated(ModelTask::kBase);
  const ModelInputs inputs{.input_ids = random_texts(2, 6)};
  const ModelOutput output = model->forward(inputs, {.output_hidden_states = true});
  ASSERT_EQ(output.hidden_states.size(), 3U);
  EXPECT_TRUE(output.hidden_states.back().equal(output.last_hidden_state));
  EXPECT_TRUE(model->forward(inputs).hidden_states.empty());
  EXPECT_EQ(output.pooler_output.defined(), GetParam() != "distilbert");
}

TEST_P(Encoders, HeadsGiveLogitsInThePlaceOfTheLastHiddenState) {
  const ModelInputs inputs{.input_ids = random_texts(2, 6)};
  const std::vector<std::pair<ModelTask, std::vector<int64_t>>> shapes{
      {ModelTask::kSequenceClassification, {2, 2}},
      {ModelTask::kTokenClassification, {2, 6, 2}},
      {ModelTask::kMaskedLm, {2, 6, 40}}};
  for (const auto& [task, shape] : shapes) {
    const auto model = evaluated(task);
    const ModelOutput output = model->forward(inputs, {.output_hidden_states = true});
    EXPECT_EQ(output.logits.sizes().vec(), shape) << model->architecture();
    EXPECT_EQ(output.hidden_states.size(), 3U);
    EXPECT_FALSE(output.loss.defined() || output.last_hidden_state.defined() ||
                 output.pooler_output.defined());
  }
}

TEST_P(Encoders, TheFirstLabelsSettleTheProblemType) {
  const at::Tensor text = random_texts(3, 5);
  const auto loss_of = [&](int64_t labels, const at::Tensor& wanted, std::string& type) {
    ModelConfig config = small_model(GetParam());
    config.set_num_labels(labels);
    const auto model = random_model(ModelTask::kSequenceClassification, config);
    model->eval();
    EXPECT_FALSE(model->config().has("problem_type"));
    ModelOutput output = model->forward({.input_ids = text, .labels = wanted});
    type = model->config().text("problem_type");
    return output;
  };
  std::string type;

  const at::Tensor classes = at::tensor({0, 2, 1}, at::kLong);
  ModelOutput output = loss_of(3, classes, type);
  EXPECT_EQ(type, "single_label_classification");
  expect_close(output.loss, at::cross_entropy_loss(output.logits, classes));

  const at::Tensor value = at::tensor({0.5, -1.0, 2.0}, at::kFloat);
  output = loss_of(1, value, type);
  EXPECT_EQ(type, "regression");
  expect_close(output.loss, at::mse_loss(output.logits.squeeze(1), value));

  const at::Tensor flags = at::tensor({1, 0, 0, 1, 1, 1}, at::kFloat).view({3, 2});
  output = loss_of(2, flags, type);
  EXPECT_EQ(type, "multi_label_classification");
  expect_close(output.loss, at::binary_cross_entropy_with_logits(output.logits, flags));
}

// Without hidden states a classifier computes only what its first position depends on.
TEST_P(Encoders, ClassifiersLeaveOutWhatTheyDoNotLookAt) {
  const auto model = random_model(ModelTask::kSequenceClassification, small_model(GetParam()));
  const auto run = [&](const ModelInputs& inputs, bool output_hidden_states) {
    model->zero_grad();
    at::manual_seed(9);
    const ModelOutput output =
        model->forward(inputs, {.output_hidden_states = output_hidden_states});
    output.loss.backward();
    std::vector<at::Tensor> all{output.logits.detach()};
    for (const at::Tensor& parameter : model->parameters()) all.push_back(parameter.grad().clone());
    return all;
  };
  ModelInputs inputs{.input_ids = random_texts(4, 9),
                     .labels = at::tensor({0, 1, 1, 0}, at::kLong)};
  const at::Tensor lengths = at::tensor({9, 3, 1, 6}, at::kLong).unsqueeze(1);
  const at::Tensor right = at::arange(9).unsqueeze(0).lt(lengths).to(at::kLong);
  const at::Tensor short_of_one = at::arange(9).unsqueeze(0).lt(8).expand({4, 9}).to(at::kLong);
  for (const at::Tensor& mask :
       {at::Tensor(), at::ones({4, 9}, at::kLong), right, right.flip(1), short_of_one}) {
    inputs.attention_mask = mask;
    for (const bool training : {false, true}) {
      model->train(training);
      const auto all = run(inputs, true), first = run(inputs, false);
      for (size_t i = 0; i < all.size(); ++i) expect_close(first[i], all[i]);
    }
  }
}

// As with at::dropout(): zeros, not none.
TEST_P(Encoders, ParametersBehindADropoutOfAllHaveGradients) {
  ModelConfig config = small_model(GetParam());
  set_all_dropout(config, 1.0);
  const auto model = random_model(ModelTask::kSequenceClassification, config);
  ModelInputs inputs{.input_ids = random_texts(2, 5), .labels = at::tensor({0, 1})};
  inputs.attention_mask = at::tensor({1, 1, 1, 0, 0}).expand({2, 5});
  model->forward(inputs).loss.backward();
  for (const auto& item : model->named_parameters()) {
    EXPECT_TRUE(item.value().grad().defined()) << item.key();
  }
}

TEST_P(Encoders, ATextOfPaddingAloneIsNoNumberGoneWrong) {
  const auto model = random_model(ModelTask::kSequenceClassification, small_model(GetParam()));
  at::Tensor mask = at::ones({2, 4}, at::kLong);
  mask[1].zero_();
  const ModelInputs inputs{.input_ids = random_texts(2, 4), .attention_mask = mask};
  for (const bool training : {false, true}) {
    model->train(training);
    EXPECT_TRUE(model->forward(inputs).logits.isfinite().all().item<bool>());
  }
}

TEST_P(Encoders, TokensWithoutALabelDoNotCount) {
  const auto model = evaluated(ModelTask::kTokenClassification);
  const at::Tensor text = random_texts(2, 4);
  const at::Tensor labels = at::tensor({0, -100, 1, -100, -100, 1, 1, 0}, at::kLong).view({2, 4});
  const ModelOutput output = model->forward({.input_ids = text, .labels = labels});
  const at::Tensor counted = labels.flatten().ne(-100);
  expect_close(output.loss, at::cross_entropy_loss(output.logits.flatten(0, 1).index({counted}),
                                                   labels.flatten().index({counted})));
}

TEST_P(Encoders, MaskedWordsShareTheMatrixOfTheEmbeddings) {
  const auto model = evaluated(ModelTask::kMaskedLm);
  size_t matrices = 0;
  for (const auto& item : model->named_parameters()) {
    matrices += item.value().sizes() == at::IntArrayRef({40, 16}) ? 1 : 0;
  }
  EXPECT_EQ(matrices, 1U);
  for (const auto& [name, registered] : model->tied_weights()) {
    EXPECT_FALSE(model->named_parameters().contains(name));
    EXPECT_TRUE(model->named_parameters().contains(registered));
  }
  EXPECT_EQ(model->tied_weights().size(), GetParam() == "distilbert" ? 1U : 2U);
}

TEST_P(Encoders, MaskedWordsCanHaveAMatrixOfTheirOwn) {
  ModelConfig config = small_model(GetParam());
  config.set("tie_word_embeddings", false);
  const auto untied = random_model(ModelTask::kMaskedLm, config);
  EXPECT_THAT(untied->tied_weights(), testing::IsEmpty());

  const auto model = evaluated(ModelTask::kMaskedLm);
  const std::string name = model->tied_weights().front().first;
  EXPECT_TRUE(untied->named_parameters().contains(name));
  const ModelInputs inputs{.input_ids = random_texts(1, 4)};
  const at::Tensor before = model->forward(inputs).logits;
  const at::Tensor words =
      model->named_parameters()[model->tied_weights().front().second].detach().clone();
  EXPECT_TRUE(model->untie(name));
  EXPECT_FALSE(model->untie(name));
  const at::NoGradGuard no_gradient;
  model->named_parameters()[name].copy_(words);
  EXPECT_TRUE(model->forward(inputs).logits.equal(before));
  model->named_parameters()[name].zero_();
  EXPECT_FALSE(model->forward(inputs).logits.equal(before));
}

TEST_P(Encoders, LossOnlyIsTheSameLossAndGradient) {
  const auto model = evaluated(ModelTask::kMaskedLm);
  ModelInputs inputs{.input_ids = random_texts(2, 6)};
  inputs.labels = at::where(at::arange(12).view({2, 6}).remainder(4) == 1, inputs.input_ids, -100);
  const auto gradient = [&](const ForwardOptions& options) {
    model->zero_grad();
    const ModelOutput output = model->forward(inputs, options);
    EXPECT_EQ(output.logits.defined(), !options.loss_only);
    output.loss.backward();
    std::vector<at::Tensor> all{output.loss.detach()};
    for (const at::Tensor& parameter : model->parameters()) all.push_back(parameter.grad().clone());
    return all;
  };
  const auto full = gradient({});
  const auto loss_only = gradient({.loss_only = true});
  for (size_t i = 0; i < full.size(); ++i) expect_close(loss_only[i], full[i]);
}

TEST_P(Encoders, ThePaddingHasNoGradientAndBeginsAtZero) {
  const auto model = transformers::make_model(ModelTask::kBase, small_model(GetParam()));
  const at::Tensor words = model->named_parameters()["embeddings.word_embeddings.weight"];
  EXPECT_EQ(words[padding()].abs().sum().item<double>(), 0.0);
  EXPECT_NE(words[padding() + 1].abs().sum().item<double>(), 0.0);
  model->forward({.input_ids = at::tensor({5, 0, 1, 7}, at::kLong).view({1, 4})})
      .last_hidden_state.square()
      .sum()
      .backward();
  EXPECT_EQ(words.grad()[padding()].abs().sum().item<double>(), 0.0);
  EXPECT_NE(words.grad()[1 - padding()].abs().sum().item<double>(), 0.0);
}

TEST_P(Encoders, InputsThatMakeNoSenseAreRefused) {
  const auto model = evaluated(ModelTask::kBase);
  const at::Tensor text = random_texts(2, 6);
  EXPECT_THAT([&] { model->forward({}); }, throws_error<UsageError>("without input_ids"));
  EXPECT_THAT([&] { model->forward({.input_ids = text[0]}); },
              throws_error<UsageError>("[6], not [batch, positions]"));
  EXPECT_THAT(
      [&] {
        model->forward({.input_ids = text, .attention_mask = at::ones({2, 5})});
      },
      throws_error<UsageError>("attention_mask has the shape [2, 5]"));
  EXPECT_THAT([&] { model->forward({.input_ids = random_texts(1, 21)}); },
              throws_error<UsageError>("21"));
}

TEST(RobertaEncoder, OnlyWhatIsNoPaddingNeedsAPosition) {
  const auto model = random_model(ModelTask::kBase, small_bert("roberta"));
  const at::Tensor pad = at::ones({1, 10}, at::kLong);
  EXPECT_NO_THROW(model->forward({.input_ids = at::cat({random_texts(1, 18), pad}, 1)}));
  EXPECT_THAT([&] { model->forward({.input_ids = random_texts(1, 19)}); },
              throws_error<UsageError>("up to 19 tokens for a model that has positions for 18"));
}

TEST(BertEncoder, ClassifierDropoutIsItsOwn) {
  ModelConfig config = small_bert();
  set_all_dropout(config, 0.0);
  const ModelInputs inputs{.input_ids = random_texts(4, 6)};
  for (const auto task : {ModelTask::kSequenceClassification, ModelTask::kTokenClassification}) {
    config.set("classifier_dropout", nullptr);
    auto model = random_model(task, config);
    EXPECT_TRUE(model->forward(inputs).logits.equal(model->forward(inputs).logits));
    config.set("classifier_dropout", 0.5);
    model = random_model(task, config);
    EXPECT_FALSE(model->forward(inputs).logits.equal(model->forward(inputs).logits));
  }
}

TEST(BertEncoder, ADecoderDoesNotLookAhead) {
  ModelConfig config = small_bert();
  config.set("is_decoder", true);
  const auto model = random_model(ModelTask::kBase, config);
  model->eval();
  const at::Tensor text = random_texts(1, 8);
  expect_close(model->forward({.input_ids = text}).last_hidden_state.slice(1, 0, 5),
               model->forward({.input_ids = text.slice(1, 0, 5)}).last_hidden_state);
}

TEST(BertEncoder, SettingsThatItCannotFollowAreRefused) {
  const auto make = [](const char* key, transformers::ConfigValue value) {
    ModelConfig config = small_bert();
    config.set(key, std::move(value));
    return [config] { transformers::make_model(ModelTask::kBase, config); };
  };
  EXPECT_THAT(make("num_attention_heads", int64_t{3}),
              throws_error<DataError>("hidden size of 16 cannot be divided among 3"));
  EXPECT_THAT(make("hidden_act", "geluu"), throws_error<DataError>("'hidden_act'"));
  EXPECT_THAT(make("position_embedding_type", "relative_key"),
              throws_error<DataError>("'relative_key'; only 'absolute'"));
  EXPECT_THAT(
      make("layer_norm_eps", -1.0),
      throws_error<DataError>("\"layer_norm_eps\" is -1.0; it should be a number that is 0"));
  EXPECT_THAT(make("add_cross_attention", true), throws_error<DataError>("add_cross_attention"));
}

TEST(DistilBertEncoder, PositionsCanBeginAsWaves) {
  ModelConfig config = small_distilbert();
  config.set("sinusoidal_pos_embds", true);
  const auto model = transformers::make_model(ModelTask::kBase, config);
  const at::Tensor table = model->named_parameters()["embeddings.position_embeddings.weight"];
  for (const auto& [place, column] :
       std::vector<std::pair<int64_t, int64_t>>{{0, 0}, {7, 2}, {19, 15}}) {
    const double angle =
        static_cast<double>(place) / std::pow(10000.0, static_cast<double>(column / 2 * 2) / 16);
    EXPECT_NEAR(table[place][column].item<double>(),
                column % 2 == 0 ? std::sin(angle) : std::cos(angle), 1e-6);
  }
}

}  // namespace
}  // namespace accelerate::test
