// from_pretrained(): which model is made, and how the tensors of files get into it.
#include <accelerate/safetensors.h>
#include <accelerate/torch_archive.h>
#include <accelerate/transformers/auto_model.h>
#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "transformers/checkpoints.h"
#include "transformers/saved_model.h"

namespace accelerate::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Lt;
using testing::Not;
using testing::SizeIs;
using transformers::AutoModel;
using transformers::AutoModelForCausalLM;
using transformers::AutoModelForMaskedLM;
using transformers::AutoModelForSeq2SeqLM;
using transformers::AutoModelForSequenceClassification;
using transformers::PretrainedReport;

TEST(FromPretrained, GivesTheModelThatWasSavedInEvalModeWithNothingToSay) {
  const Saved saved(ModelTask::kSequenceClassification, small_bert());
  PretrainedReport report;
  const auto model = load<AutoModelForSequenceClassification>(saved, report);
  expect_same_state(*model, *saved.model);
  EXPECT_FALSE(model->is_training());
  EXPECT_EQ(model->architecture(), "BertForSequenceClassification");
  EXPECT_THAT(report.message, IsEmpty());
  const at::Tensor ids = random_texts(2, 7);
  EXPECT_TRUE(at::equal(model->forward({.input_ids = ids}).logits,
                        saved.model->forward({.input_ids = ids}).logits));
  for (const at::Tensor& parameter : model->parameters()) EXPECT_TRUE(parameter.requires_grad());
}

TEST(FromPretrained, PutsABaseCheckpointIntoAModelWithAHead) {
  const Saved saved(ModelTask::kBase, small_bert());
  PretrainedReport report;
  at::manual_seed(5);
  const auto model = load<AutoModelForSequenceClassification>(saved, report, {.num_labels = 3});
  EXPECT_THAT(report.missing_keys, ElementsAre("classifier.weight", "classifier.bias"));
  EXPECT_THAT(report.unexpected_keys, IsEmpty());
  EXPECT_EQ(report.message,
            "BertForSequenceClassification from " + saved.folder.text() +
                ":\n  newly initialised, because the files do not have them: classifier.weight, "
                "classifier.bias\n  Train the model before its predictions are used.");
  const ModelStateDict state = get_state_dict(*model);
  const ModelStateDict base = get_state_dict(*saved.model);
  for (const auto& item : base) EXPECT_TRUE(at::equal(item.value(), state["bert." + item.key()]));
  EXPECT_EQ(state["classifier.weight"].sizes(), at::IntArrayRef({3, 16}));
  EXPECT_TRUE(at::equal(state["classifier.bias"], at::zeros({3})));
  // Of the default generator, and of nothing else: the seed decides.
  at::manual_seed(5);
  const at::Tensor expected = at::empty({3, 16}).normal_(0.0, 0.3);
  EXPECT_TRUE(at::equal(state["classifier.weight"], expected));
}

TEST(FromPretrained, TakesTheBaseOutOfACheckpointWithAHead) {
  const Saved saved(ModelTask::kSequenceClassification, small_bert());
  PretrainedReport report;
  const auto model = load<AutoModel>(saved, report);
  EXPECT_THAT(report.missing_keys, IsEmpty());
  EXPECT_THAT(report.unexpected_keys, ElementsAre("classifier.bias", "classifier.weight"));
  EXPECT_THAT(report.message,
              HasSubstr("in the files, but not used by this model: classifier.bias, "));
  EXPECT_THAT(report.message, Not(HasSubstr("Train")));
  const ModelStateDict state = get_state_dict(*model);
  const ModelStateDict whole = get_state_dict(*saved.model);
  for (const auto& item : state) EXPECT_TRUE(at::equal(item.value(), whole["bert." + item.key()]));
}

TEST(FromPretrained, ReadsOldNamesAndLeavesOldBuffersOut) {
  const Saved saved(ModelTask::kBase, small_bert());
  saved.rename([](const std::string& name) {
    return replaced(replaced(name, "LayerNorm.weight", "LayerNorm.gamma"), "LayerNorm.bias",
                    "LayerNorm.beta");
  });
  NamedTensors tensors = saved.tensors();
  tensors.insert("embeddings.position_ids", at::arange(20).unsqueeze(0));
  saved.write(tensors);
  PretrainedReport report;
  expect_same_state(*load<AutoModel>(saved, report), *saved.model);
  EXPECT_THAT(report.message, IsEmpty());

  const Saved gpt2(ModelTask::kBase, small_gpt2());
  tensors = gpt2.tensors();
  tensors.insert("h.0.attn.bias", at::ones({1, 1, 24, 24}));
  tensors.insert("h.0.attn.masked_bias", at::tensor(-1e4));
  gpt2.write(tensors);
  expect_same_state(*load<AutoModel>(gpt2, report), *gpt2.model);
  EXPECT_THAT(report.message, IsEmpty());
}

TEST(FromPretrained, TakesATiedParameterByEitherName) {
  const Saved saved(ModelTask::kCausalLm, small_gpt2());
  PretrainedReport report;
  EXPECT_FALSE(saved.tensors().contains("lm_head.weight"));
  expect_same_state(*load<AutoModelForCausalLM>(saved, report), *saved.model);
  EXPECT_THAT(report.message, IsEmpty());
  saved.rename([](const std::string& name) {
    return replaced(name, "transformer.wte.weight", "lm_head.weight");
  });
  expect_same_state(*load<AutoModelForCausalLM>(saved, report), *saved.model);
  EXPECT_THAT(report.message, IsEmpty());
  NamedTensors both = saved.tensors();
  both.insert("transformer.wte.weight", both["lm_head.weight"].clone());
  saved.write(both);
  expect_same_state(*load<AutoModelForCausalLM>(saved, report), *saved.model);
  EXPECT_THAT(report.message, IsEmpty());
}

TEST(FromPretrained, DoesNotTieWhatIsDifferentInTheFiles) {
  const Saved saved(ModelTask::kCausalLm, small_gpt2());
  NamedTensors tensors = saved.tensors();
  const at::Tensor head = at::randn({40, 16});
  tensors.insert("lm_head.weight", head);
  saved.write(tensors);
  PretrainedReport report;
  const auto model = load<AutoModelForCausalLM>(saved, report);
  const ModelStateDict state = get_state_dict(*model);
  EXPECT_TRUE(at::equal(state["lm_head.weight"], head));
  EXPECT_TRUE(at::equal(state["transformer.wte.weight"], tensors["transformer.wte.weight"]));
  EXPECT_THAT(report.message,
              HasSubstr("with values of their own, so not tied to the embeddings: lm_head.weight"));
}

// All three are names of one parameter, and none is the one that it is registered by.
TEST(FromPretrained, ComparesTheOtherNamesOfATiedParameterToo) {
  const Saved saved(ModelTask::kSeq2SeqLm, small_t5());
  saved.rename([](const std::string& name) {
    return replaced(name, "shared.weight", "decoder.embed_tokens.weight");
  });
  NamedTensors tensors = saved.tensors();
  const at::Tensor head = at::randn({40, 16});
  tensors.insert("lm_head.weight", head);
  saved.write(tensors);
  PretrainedReport report;
  const auto model = load<AutoModelForSeq2SeqLM>(saved, report);
  EXPECT_TRUE(at::equal(get_state_dict(*model)["lm_head.weight"], head));
  EXPECT_TRUE(
      at::equal(get_state_dict(*model)["shared.weight"], tensors["decoder.embed_tokens.weight"]));
  EXPECT_THAT(report.message,
              HasSubstr("with values of their own, so not tied to the embeddings: lm_head.weight"));
}

TEST(FromPretrained, RefusesADeviceThatIsNotThere) {
  const Saved saved(ModelTask::kBase, small_bert());
  PretrainedReport report;
  EXPECT_THAT(error_from<UsageError>(
                  [&] { load<AutoModel>(saved, report, {.device = c10::Device(c10::kXPU, 0)}); }),
              AllOf(HasSubstr("the device xpu:0 cannot be used: "), Not(HasSubstr("backtrace")),
                    SizeIs(Lt(300U))));
}

TEST(FromPretrained, ListsTensorsOfAnotherSizeAndMakesNewOnesIfAllowed) {
  const Saved saved(ModelTask::kSequenceClassification, small_bert());
  PretrainedReport report;
  EXPECT_EQ(error_from<CheckpointError>([&] {
              load<AutoModelForSequenceClassification>(saved, report, {.num_labels = 5});
            }),
            "CheckpointError: the files do not fit the model: classifier.weight [2, 16] in the "
            "files, [5, 16] in the model; classifier.bias [2] in the files, [5] in the model\n"
            "  at   " +
                saved.weights().string() +
                "\n  try  for a new head of another size set ignore_mismatched_sizes; "
                "otherwise config.json and the files belong to different models");
  const auto model = load<AutoModelForSequenceClassification>(
      saved, report, {.labels = {"a", "b", "c", "d", "e"}, .ignore_mismatched_sizes = true});
  EXPECT_THAT(report.mismatched_keys, ElementsAre("classifier.weight", "classifier.bias"));
  EXPECT_THAT(report.missing_keys, IsEmpty());
  EXPECT_THAT(report.message, HasSubstr("in another size: classifier.weight [2, 16] in the files"));
  EXPECT_THAT(model->config().labels(), ElementsAre("a", "b", "c", "d", "e"));
  EXPECT_TRUE(at::equal(get_state_dict(*model)["classifier.bias"], at::zeros({5})));
}

TEST(FromPretrained, LoadsTheTypeThatWasSavedUnlessToldOtherwise) {
  const Saved saved(ModelTask::kBase, small_bert());
  PretrainedReport report;
  const auto dtype_of = [&](transformers::PretrainedOptions options) {
    const auto model = load<AutoModel>(saved, report, std::move(options));
    EXPECT_EQ(model->config().dtype(), model->parameters().front().scalar_type());
    for (const at::Tensor& parameter : model->parameters()) {
      EXPECT_EQ(parameter.scalar_type(), model->parameters().front().scalar_type());
    }
    return model->parameters().front().scalar_type();
  };
  EXPECT_EQ(dtype_of({}), at::kFloat);
  EXPECT_EQ(dtype_of({.dtype = at::kBFloat16}), at::kBFloat16);
  saved.model->to(at::kHalf);
  transformers::save_pretrained(*saved.model, saved.folder.path());
  EXPECT_EQ(dtype_of({}), at::kHalf);
  EXPECT_EQ(dtype_of({.dtype = at::kFloat}), at::kFloat);
  // config.json has the word, in either spelling; then the files.
  saved.set("dtype", nullptr);
  saved.set("torch_dtype", "bfloat16");
  EXPECT_EQ(dtype_of({}), at::kBFloat16);
  saved.set("torch_dtype", nullptr);
  EXPECT_EQ(dtype_of({}), at::kHalf);
  EXPECT_THROW(dtype_of({.dtype = at::kInt}), UsageError);
}

TEST(FromPretrained, KeepsModulesInFloat32ThatFloat16WouldHurt) {
  const Saved saved(ModelTask::kSeq2SeqLm, small_t5());
  PretrainedReport report;
  const auto model = load<AutoModelForSeq2SeqLM>(saved, report, {.dtype = at::kHalf});
  for (const auto& item : model->named_parameters()) {
    const bool kept = item.key().find(".wo.") != std::string::npos;
    EXPECT_EQ(item.value().scalar_type(), kept ? at::kFloat : at::kHalf) << item.key();
  }
}

TEST(FromPretrained, ChangesSettingsBeforeTheModelIsMade) {
  const Saved saved(ModelTask::kBase, small_bert());
  PretrainedReport report;
  const auto model = load<AutoModel>(
      saved, report, {.config = {{"num_hidden_layers", int64_t{1}}, {"hidden_act", "relu"}}});
  EXPECT_EQ(model->config().size("num_hidden_layers"), 1);
  EXPECT_EQ(report.unexpected_keys.size(), 16U);
  EXPECT_THAT(report.missing_keys, IsEmpty());
  EXPECT_THROW(load<AutoModel>(saved, report, {.num_labels = 3, .labels = {"a"}}), UsageError);
  EXPECT_THROW(load<AutoModel>(saved, report, {.num_labels = 0}), UsageError);
}

TEST(FromPretrained, ReadsShardsAndArchives) {
  const Saved saved(ModelTask::kSequenceClassification, small_bert());
  PretrainedReport report;
  transformers::save_pretrained(*saved.model, saved.folder.path(), {.max_shard_size = "5KB"});
  EXPECT_FALSE(fs::exists(saved.weights()));
  EXPECT_GT(names_in(saved.folder.path()).size(), 4U);
  expect_same_state(*load<AutoModelForSequenceClassification>(saved, report), *saved.model);
  save_model(*saved.model, saved.folder.path(), {.safe_serialization = false});
  EXPECT_THAT(names_in(saved.folder.path()), ElementsAre("config.json", "pytorch_model.bin"));
  expect_same_state(*load<AutoModelForSequenceClassification>(saved, report), *saved.model);
  save_model(*saved.model, saved.folder.path(),
             {.max_shard_size = "5KB", .safe_serialization = false});
  EXPECT_TRUE(fs::exists(saved.folder.path() / "pytorch_model.bin.index.json"));
  expect_same_state(*load<AutoModelForSequenceClassification>(saved, report), *saved.model);
  EXPECT_THAT(report.message, IsEmpty());
  // Where both are there, as on the hub: safetensors.
  write_file(saved.weights(), "damaged");
  EXPECT_THROW(load<AutoModelForSequenceClassification>(saved, report), CheckpointError);
}

TEST(FromPretrained, TakesTheTwoNamesOfAnArchiveForOneTensor) {
  const Saved saved(ModelTask::kCausalLm, small_gpt2());
  NamedTensors tensors = saved.tensors();
  tensors.insert("lm_head.weight", tensors["transformer.wte.weight"]);
  fs::remove(saved.weights());
  accelerate::save(tensors, saved.folder.path() / "pytorch_model.bin");
  PretrainedReport report;
  expect_same_state(*load<AutoModelForCausalLM>(saved, report), *saved.model);
  EXPECT_THAT(report.message, IsEmpty());
}

TEST(FromPretrained, SaysWhatAModelTypeOffers) {
  const Saved saved(ModelTask::kSeq2SeqLm, small_t5());
  EXPECT_EQ(
      error_from<DataError>([&] { AutoModelForMaskedLM::from_pretrained(saved.folder.text()); }),
      "DataError: there is no AutoModelForMaskedLM for the model type \"t5\"\n  at   " +
          (saved.folder.path() / "config.json").string() +
          "\n  try  it offers T5ForConditionalGeneration (AutoModelForSeq2SeqLM), "
          "T5ForSequenceClassification (AutoModelForSequenceClassification), "
          "T5ForTokenClassification (AutoModelForTokenClassification), T5Model (AutoModel)");
  saved.set("architectures", nullptr);
  saved.set("model_type", "mamba");
  EXPECT_THAT(error_from<DataError>([&] { AutoModel::from_pretrained(saved.folder.text()); }),
              HasSubstr("the model type \"mamba\" is not supported"));
  EXPECT_THAT(error_from<DataError>([&] { AutoModel::from_pretrained(saved.folder.text()); }),
              HasSubstr("known: bert, distilbert, gpt2, llama, roberta, t5"));
}

TEST(FromPretrained, GoesByTheArchitectureWhereTheTypeIsUnknown) {
  const Saved saved(ModelTask::kSequenceClassification, small_bert());
  PretrainedReport report;
  for (const transformers::ConfigValue& type :
       {transformers::ConfigValue(nullptr), transformers::ConfigValue("my-bert")}) {
    saved.set("model_type", type);
    expect_same_state(*load<AutoModelForSequenceClassification>(saved, report), *saved.model);
  }
}

TEST(FromPretrained, ReadsTheSettingsOfGenerationOrWhatTheModelHasOfThem) {
  const Saved saved(ModelTask::kCausalLm, generating_gpt2());
  PretrainedReport report;
  auto model = load<AutoModelForCausalLM>(saved, report);
  EXPECT_EQ(model->generation_config().integer("max_length"), 30);
  EXPECT_EQ(model->generation_config().integer("eos_token_id"), 2);
  EXPECT_FALSE(model->config().has("max_length"));
  write_file(saved.folder.path() / "generation_config.json", R"({"top_k": 7})");
  model = load<AutoModelForCausalLM>(saved, report);
  EXPECT_EQ(model->generation_config().integer("top_k"), 7);
  EXPECT_FALSE(model->generation_config().has("eos_token_id"));
  write_file(saved.folder.path() / "generation_config.json", "[]");
  EXPECT_THROW(load<AutoModelForCausalLM>(saved, report), DataError);
  fs::remove(saved.folder.path() / "generation_config.json");
  model = load<AutoModelForCausalLM>(saved, report);
  EXPECT_EQ(model->generation_config().integer("eos_token_id"), 2);
}

}  // namespace
}  // namespace accelerate::test
