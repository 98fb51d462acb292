// Numbers that no row of a model belongs to are refused by name, before libtorch sees them.
#include <accelerate/errors.h>
#include <gmock/gmock.h>

#include <functional>
#include <string>
#include <vector>

#include "transformers/decoder_models.h"

namespace accelerate::test {
namespace {

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const UsageError& error) {
    return error.message();
  } catch (const std::exception& error) {
    return std::string("not a UsageError: ") + error.what();
  }
  return "nothing was thrown";
}

at::Tensor with(at::Tensor tensor, int64_t value) {
  tensor = tensor.clone();
  tensor.view({-1})[-1] = value;
  return tensor;
}

class InputRanges : public testing::TestWithParam<std::string> {
 protected:
  static bool is_t5() { return GetParam() == "t5"; }
  static ModelInputs inputs_of(const at::Tensor& ids) {
    return {.input_ids = ids, .decoder_input_ids = is_t5() ? random_texts(2, 5) : at::Tensor()};
  }
  static std::string said(ModelTask task, const ModelInputs& inputs) {
    ModelConfig config = small_model(GetParam());
    config.set("num_labels", int64_t{3});
    const auto model = random_decoder(task, config);
    return refusal([&] { (void)model->forward(inputs); });
  }
};

INSTANTIATE_TEST_SUITE_P(All, InputRanges,
                         testing::Values("bert", "roberta", "distilbert", "gpt2", "llama", "t5"),
                         [](const auto& info) { return info.param; });

TEST_P(InputRanges, TokensAreThoseOfTheVocabulary) {
  const at::Tensor ids = random_texts(2, 5);
  for (const int64_t wrong : {int64_t{40}, int64_t{-1}, INT64_MIN, INT64_MAX}) {
    EXPECT_EQ(said(ModelTask::kBase, inputs_of(with(ids, wrong))),
              "input_ids has " + std::to_string(wrong) + "; the model has 40 tokens, from 0 to 39");
  }
  EXPECT_EQ(said(ModelTask::kBase, inputs_of(ids.to(at::kFloat))),
            "input_ids has numbers of the type Float, not whole ones");
  EXPECT_EQ(said(ModelTask::kBase, inputs_of(with(ids, 39).to(at::kInt))), "nothing was thrown");
}

TEST_P(InputRanges, LabelsAreThoseOfTheClasses) {
  const at::Tensor ids = with(random_texts(2, 5), 1);  // with an EOS for T5
  const auto labelled = [&](const at::Tensor& labels) {
    ModelInputs inputs{.input_ids = at::cat({ids, at::ones({2, 1}, at::kLong)}, 1)};
    inputs.labels = labels;
    return inputs;
  };
  const auto task = ModelTask::kSequenceClassification;
  EXPECT_EQ(said(task, labelled(at::tensor({0, 3}))),
            "labels has 3; the model has 3 classes, from 0 to 2, and -100 for what does not count");
  EXPECT_EQ(said(task, labelled(at::tensor({-1, 2}))),
            "labels has -1; the model has 3 classes, from 0 to 2, and -100 for what does not "
            "count");
  EXPECT_EQ(said(task, labelled(at::tensor({0, 1, 2}))),
            "labels has the shape [3], but there are 2 predictions");
  EXPECT_EQ(said(task, labelled(at::tensor({-100, 2}))), "nothing was thrown");
  const auto tokens = ModelTask::kTokenClassification;
  EXPECT_EQ(said(tokens, labelled(at::full({2, 6}, 7))),
            "labels has 7; the model has 3 classes, from 0 to 2, and -100 for what does not count");
  EXPECT_EQ(said(tokens, labelled(at::zeros({2, 5}, at::kLong))),
            "labels has the shape [2, 5], but there are 12 predictions");
  EXPECT_EQ(said(tokens, labelled(at::zeros({2, 6}))),
            "labels has numbers of the type Float, not whole ones");
}

TEST(InputRange, LabelsOfLanguageModelsAreTokens) {
  const at::Tensor ids = random_texts(2, 5);
  const std::string message =
      "labels has 40; the model has 40 classes, from 0 to 39, and -100 for what does not count";
  for (const std::string type : {"gpt2", "llama", "bert", "roberta", "distilbert", "t5"}) {
    SCOPED_TRACE(type);
    const bool encoder = type.find("bert") != std::string::npos;
    const auto task = encoder        ? ModelTask::kMaskedLm
                      : type == "t5" ? ModelTask::kSeq2SeqLm
                                     : ModelTask::kCausalLm;
    const auto model = random_decoder(task, small_model(type));
    for (const bool loss_only : {false, true}) {
      const ModelInputs wrong{.input_ids = ids, .labels = with(ids, 40)};
      EXPECT_EQ(refusal([&] { (void)model->forward(wrong, {.loss_only = loss_only}); }), message);
      const ModelInputs good{.input_ids = ids, .labels = with(ids, -100)};
      EXPECT_EQ(refusal([&] { (void)model->forward(good, {.loss_only = loss_only}); }),
                "nothing was thrown");
    }
  }
}

TEST(InputRange, T5NamesWhatItsDecoderIsGiven) {
  const auto t5 = random_decoder(ModelTask::kSeq2SeqLm, small_t5());
  const at::Tensor ids = random_texts(2, 5);
  const auto said = [&](const ModelInputs& inputs) {
    return refusal([&] { (void)t5->forward(inputs); });
  };
  EXPECT_EQ(said({.input_ids = ids, .decoder_input_ids = with(ids, -3)}),
            "decoder_input_ids has -3; the model has 40 tokens, from 0 to 39");
  EXPECT_EQ(said({.input_ids = ids, .labels = ids[0]}),
            "labels has the shape [5], not [batch, positions]");
  EXPECT_EQ(said({.input_ids = ids, .labels = ids, .decoder_input_ids = ids.slice(1, 1)}),
            "labels has the shape [2, 5], decoder_input_ids has [2, 4]");
  EXPECT_EQ(said({.input_ids = ids,
                  .decoder_input_ids = ids,
                  .decoder_attention_mask = at::ones({2, 4}, at::kLong)}),
            "decoder_attention_mask has the shape [2, 4], decoder_input_ids has [2, 5]");
}

TEST(InputRange, TypesAndPositionsAreThoseOfTheirTables) {
  const at::Tensor ids = random_texts(2, 5);
  const at::Tensor places = at::arange(5).expand({2, 5}).contiguous();
  const auto said = [&](const std::string& type, const ModelInputs& inputs) {
    const auto model = random_decoder(ModelTask::kBase, small_model(type));
    return refusal([&] { (void)model->forward(inputs); });
  };
  for (const std::string type : {"bert", "roberta"}) {
    EXPECT_EQ(said(type, {.input_ids = ids, .token_type_ids = with(at::zeros_like(ids), 2)}),
              "token_type_ids has 2; the model has 2 types, from 0 to 1");
  }
  EXPECT_EQ(said("gpt2", {.input_ids = ids, .token_type_ids = with(ids, 40)}),
            "token_type_ids has 40; the model has 40 types, from 0 to 39");
  for (const std::string type : {"bert", "roberta", "distilbert", "gpt2"}) {
    const std::string rows = type == "gpt2" ? "32" : "20";
    const std::string last = type == "gpt2" ? "31" : "19";
    EXPECT_EQ(
        said(type, {.input_ids = ids, .position_ids = with(places, std::stoll(rows))}),
        "position_ids has " + rows + "; the model has " + rows + " positions, from 0 to " + last);
  }
  EXPECT_EQ(said("llama", {.input_ids = ids, .position_ids = with(places, -2)}),
            "position_ids has -2, which is negative");
}

TEST(InputRange, NumbersThatAreTaughtHaveTheShapeOfThePredictions) {
  ModelConfig config = small_bert();
  config.set("num_labels", int64_t{3});
  const auto model = random_decoder(ModelTask::kSequenceClassification, config);
  const ModelInputs inputs{.input_ids = random_texts(2, 5), .labels = at::zeros({2, 2})};
  EXPECT_EQ(refusal([&] { (void)model->forward(inputs); }),
            "labels has the shape [2, 2], the predictions have [2, 3]");
  config.set("num_labels", int64_t{1});
  const auto one = random_decoder(ModelTask::kSequenceClassification, config);
  EXPECT_EQ(refusal([&] { (void)one->forward(inputs); }),
            "labels has the shape [2, 2], the predictions have [2, 1]");
}

TEST(InputRange, ALossOfFloat64IsNotRounded) {
  const auto model = random_decoder(ModelTask::kSequenceClassification, small_bert());
  model->to(at::kDouble);
  const ModelInputs inputs{.input_ids = random_texts(2, 5), .labels = at::tensor({0, 1})};
  EXPECT_EQ(model->forward(inputs).loss.scalar_type(), at::kDouble);
}

}  // namespace
}  // namespace accelerate::test
