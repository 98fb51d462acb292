// Parameters of published models, by their configuration alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "accelerate/errors.h"
#include "estimate/architectures.h"

namespace accelerate::estimate {
namespace {

using ::testing::HasSubstr;

ModelLayout described(const std::string& config) {
  return parse_architecture(config, "config.json");
}

uint64_t parameters_of(const std::string& config) {
  return measure(described(config).parameters).floats;
}

std::string refusal_of(const std::string& config) {
  try {
    described(config);
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.where(), "config.json");
    return error.message() + " | " + error.hint();
  }
  return "none";
}

TEST(EstimateArchitecture, PublishedModelsHaveTheNumbersThatTheirAuthorsName) {
  EXPECT_EQ(parameters_of(R"({"model_type": "bert", "vocab_size": 28996})"), 108'310'272);
  EXPECT_EQ(parameters_of(R"({"model_type": "bert", "architectures": ["BertForMaskedLM"]})"),
            109'514'298);
  EXPECT_EQ(parameters_of(R"({"model_type": "distilbert"})"), 66'362'880);
  EXPECT_EQ(parameters_of(R"({"model_type": "roberta", "max_position_embeddings": 514,
                              "type_vocab_size": 1})"),
            124'645'632);
  EXPECT_EQ(parameters_of(R"({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]})"),
            124'439'808);
  EXPECT_EQ(parameters_of(R"({"model_type": "gpt2", "n_embd": 1600, "n_layer": 48,
                              "n_head": 25})"),
            1'557'611'200);
  EXPECT_EQ(parameters_of(R"({"model_type": "t5", "architectures":
                              ["T5ForConditionalGeneration"]})"),
            60'506'624);
  EXPECT_EQ(parameters_of(R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"]})"),
            6'738'415'616);
  EXPECT_EQ(parameters_of(R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"],
                              "vocab_size": 128256, "intermediate_size": 14336,
                              "num_key_value_heads": 8})"),
            8'030'261'248);
}

TEST(EstimateArchitecture, HeadsDecideAboutPoolerAndClassifier) {
  const std::string base = R"({"model_type": "bert", "vocab_size": 10, "hidden_size": 4,
    "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 8, "max_position_embeddings": 4,
    "id2label": {"0": "a", "1": "b", "2": "c"}, "architectures": [")";
  const uint64_t tokens = parameters_of(base + R"(BertForTokenClassification"]})");
  EXPECT_EQ(parameters_of(base + R"(BertForSequenceClassification"]})"), tokens + 4 * 4 + 4);
  EXPECT_EQ(parameters_of(base + R"(BertForQuestionAnswering"]})"), tokens - (4 + 1));
}

TEST(EstimateArchitecture, UntiedEmbeddingsCountTwice) {
  const std::string base = R"({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"],
                               "vocab_size": 100, "n_embd": 8, "n_head": 2, "tie_word_embeddings": )";
  EXPECT_EQ(parameters_of(base + "false}"), parameters_of(base + "true}") + 100 * 8);
}

TEST(EstimateArchitecture, CommonNamesOfSettingsStandForThoseOfTheType) {
  EXPECT_EQ(parameters_of(R"({"model_type": "gpt2", "hidden_size": 24, "num_hidden_layers": 2})"),
            parameters_of(R"({"model_type": "gpt2", "n_embd": 24, "n_layer": 2})"));
  EXPECT_EQ(parameters_of(R"({"model_type": "distilbert", "hidden_size": 24})"),
            parameters_of(R"({"model_type": "distilbert", "dim": 24})"));
}

TEST(EstimateArchitecture, AClassThatIsKnownTellsTheType) {
  const ModelLayout model = described(R"({"model_type": "my-gpt2", "hidden_size": 24,
                                          "architectures": ["GPT2LMHeadModel"]})");
  EXPECT_EQ(model.name, "GPT2LMHeadModel");
  EXPECT_EQ(model.blocks.front().hidden, 24);
}

TEST(EstimateArchitecture, ANumberOfClassesCountsMoreThanTheirNames) {
  const std::string base = R"({"model_type": "gpt2", "n_embd": 24, "id2label": {"0": "a"},
                               "architectures": ["GPT2ForSequenceClassification"])";
  EXPECT_EQ(parameters_of(base + R"(, "num_labels": 5})"), parameters_of(base + "}") + 4 * 24);
}

TEST(EstimateArchitecture, HeadsThatDoNotDivideTheWidthAreRefused) {
  EXPECT_THAT(refusal_of(R"({"model_type": "bert", "hidden_size": 100})"),
              HasSubstr("a hidden size of 100 cannot be divided among 12 attention heads"));
  EXPECT_THAT(refusal_of(R"({"model_type": "llama", "num_key_value_heads": 5})"),
              HasSubstr("is 5, which does not divide the 32 attention heads"));
}

TEST(EstimateArchitecture, TheLargestLayerIsABlockOrAModuleOutsideOfBlocks) {
  EXPECT_EQ(layer_of("model.layers.3.mlp.up_proj.weight"), "model.layers.3");
  EXPECT_EQ(layer_of("decoder.block.0.layer.1.layer_norm.weight"), "decoder.block.0");
  EXPECT_EQ(layer_of("bert.embeddings.word_embeddings.weight"), "bert.embeddings.word_embeddings");
  EXPECT_EQ(layer_of("0.weight"), "0");
  EXPECT_EQ(layer_of("weight"), "weight");
  const auto sizes =
      measure(described(R"({"model_type": "bert", "vocab_size": 28996})").parameters);
  EXPECT_EQ(sizes.largest_layer, "embeddings.word_embeddings");
  EXPECT_EQ(4 * sizes.largest_floats, 89'075'712);  // 84.95 MiB
}

TEST(EstimateArchitecture, WhatIsNotKnownIsRefusedWithWhatIs) {
  EXPECT_THAT(refusal_of(R"({"model_type": "mamba"})"),
              HasSubstr("the model_type \"mamba\" is not known | known: bert, distilbert, gpt2, "
                        "llama, roberta, t5;"));
  EXPECT_THAT(refusal_of("{}"), HasSubstr("has no model_type"));
  EXPECT_THAT(refusal_of(R"({"model_type": "t5", "architectures": ["T5ForFun"]})"),
              HasSubstr("the class \"T5ForFun\" is not known | known: T5Model, "));
}

TEST(EstimateArchitecture, SizesOutOfRangeAreRefusedByName) {
  EXPECT_THAT(refusal_of(R"({"model_type": "bert", "hidden_size": 0})"),
              HasSubstr("\"hidden_size\" is 0; it should be a whole number from 1 to 2147483647"));
  EXPECT_THAT(refusal_of(R"({"model_type": "bert", "hidden_size": -4})"),
              HasSubstr("\"hidden_size\" is -4; "));
  EXPECT_THAT(refusal_of(R"({"model_type": "bert", "hidden_size": "768"})"),
              HasSubstr("\"hidden_size\" is \"768\"; "));
  EXPECT_THAT(refusal_of(R"({"model_type": "gpt2", "n_layer": 500000})"),
              HasSubstr("the model would have more than 131072 tensors"));
  EXPECT_THAT(refusal_of(R"({"model_type": "llama", "attention_bias": 1})"),
              HasSubstr("\"attention_bias\" is 1; it should be true or false"));
}

TEST(EstimateArchitecture, ModelsForNoMachineAreRefused) {
  EXPECT_THROW(described(R"({"model_type": "bert", "hidden_size": 2000000004})"), ConfigError);
  EXPECT_THROW(described(R"({"model_type": "llama", "num_attention_heads": 2147483647,
                             "head_dim": 2147483647})"),
               ConfigError);
}

TEST(EstimateArchitecture, OtherTextsAreRefused) {
  EXPECT_THAT(refusal_of("[1]"), HasSubstr("it is a list, not an object"));
  EXPECT_THAT(refusal_of("{"), HasSubstr("the file is not valid JSON"));
  EXPECT_THAT(refusal_of(R"({"hidden_size": 1, "hidden_size": 2})"),
              HasSubstr("it has the key \"hidden_size\" twice"));
  EXPECT_THAT(refusal_of("version https://git-lfs.github.com/spec/v1"), HasSubstr("git-lfs"));
  std::string deep = R"({"model_type": )";
  for (int i = 0; i < 100'000; ++i) deep += "[";
  EXPECT_THAT(refusal_of(deep), HasSubstr("nested deeper than 64 levels"));
}

}  // namespace
}  // namespace accelerate::estimate
