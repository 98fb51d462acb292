// Architectures that a program brings along.
#include <accelerate/transformers/auto_model.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <string>
#include <utility>
#include <vector>

#include "transformers/checkpoints.h"

namespace accelerate::test {
namespace {

using transformers::Architecture;
using transformers::AutoModelForTokenClassification;
using transformers::ForwardOptions;
using transformers::ModelConfig;
using transformers::ModelInputs;
using transformers::ModelOutput;
using transformers::ModelTask;
using transformers::PretrainedModel;

// Of layers of libtorch, which give their parameters values by themselves.
class Tagger : public PretrainedModel {
 public:
  explicit Tagger(const ModelConfig& config)
      : PretrainedModel(config),
        embed_(register_module("embed", torch::nn::Embedding(config.size("vocab_size"), 4))),
        head_(register_module("head", torch::nn::Linear(4, config.num_labels()))),
        seen_(register_buffer("seen", at::zeros({2}, at::kLong))) {}

  ModelOutput forward(const ModelInputs& inputs, const ForwardOptions& /*options*/) override {
    return {.logits = head_(embed_(inputs.input_ids))};
  }
  std::string architecture() const override { return "TaggerForTokenClassification"; }
  std::string base_model_prefix() const override { return ""; }

 private:
  torch::nn::Embedding embed_;
  torch::nn::Linear head_;
  at::Tensor seen_;
};

const char* const kConfig = R"({"model_type": "tagger", "vocab_size": 9, "num_labels": 3})";

class Registry : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    transformers::register_architecture<Tagger>("tagger", ModelTask::kTokenClassification,
                                                "TaggerForTokenClassification");
  }
};

TEST_F(Registry, ModelsOfOthersAreMadeSavedAndLoaded) {
  const CheckpointFolder folder;
  const auto model = AutoModelForTokenClassification::from_config(ModelConfig::from_json(kConfig));
  model->buffers().front().fill_(7);
  transformers::save_pretrained(*model, folder.path());
  expect_same_state(*AutoModelForTokenClassification::from_pretrained(folder.text()), *model);
  const auto narrow =
      AutoModelForTokenClassification::from_pretrained(folder.text(), {.dtype = at::kBFloat16});
  for (const at::Tensor& parameter : narrow->parameters()) {
    EXPECT_EQ(parameter.scalar_type(), at::kBFloat16);
  }
  EXPECT_TRUE(at::equal(narrow->buffers().front(), at::full({2}, 7, at::kLong)));
  const at::Tensor ids = at::arange(4).unsqueeze(0);
  EXPECT_EQ(narrow->forward({.input_ids = ids}).logits.sizes(), at::IntArrayRef({1, 4, 3}));
}

TEST_F(Registry, OneTypeHasOneModelForATask) {
  EXPECT_THROW(transformers::register_architecture<Tagger>(
                   "tagger", ModelTask::kTokenClassification, "Another"),
               UsageError);
  EXPECT_THROW(transformers::register_architecture(Architecture{.model_type = "x"}), UsageError);
  EXPECT_THROW(transformers::register_architecture<Tagger>("bert", ModelTask::kBase, "Mine"),
               UsageError);
}

// Two names in the files, one parameter in the model, and no way to have two.
class TiedTagger : public Tagger {
 public:
  using Tagger::Tagger;
  std::vector<std::pair<std::string, std::string>> tied_weights() const override {
    return {{"copy.weight", "embed.weight"}};
  }
};

TEST_F(Registry, TiedTensorsThatDifferAreRefusedWhereTheyCannotBeUntied) {
  transformers::register_architecture<TiedTagger>("tied-tagger", ModelTask::kTokenClassification,
                                                  "TiedTagger");
  const CheckpointFolder folder;
  ModelConfig config = ModelConfig::from_json(kConfig);
  config.set("model_type", "tied-tagger");
  const auto model = AutoModelForTokenClassification::from_config(config);
  transformers::save_pretrained(*model, folder.path());
  const fs::path weights = folder.path() / "model.safetensors";
  NamedTensors tensors;
  for (const auto& item : load_state_dict(weights)) {
    tensors.insert(item.key(), item.value().clone());
  }
  tensors.insert("copy.weight", tensors["embed.weight"].clone());
  save_safetensors(weights, tensors);
  expect_same_state(*AutoModelForTokenClassification::from_pretrained(folder.text()), *model);
  tensors["copy.weight"].add_(1);
  save_safetensors(weights, tensors);
  EXPECT_EQ(error_from<CheckpointError>(
                [&] { AutoModelForTokenClassification::from_pretrained(folder.text()); }),
            "CheckpointError: \"embed.weight\" and \"copy.weight\" are one tensor in this model, "
            "but have different values in the files\n  at   " +
                weights.string() + "\n  try  remove one of them from the files");
}

}  // namespace
}  // namespace accelerate::test
