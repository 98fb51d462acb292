// What loading says of files that are not what they should be, and of options that are not.
#include <accelerate/transformers/auto_model.h>
#include <accelerate/transformers/pretrained_tokenizer.h>
#include <gmock/gmock.h>
#include <stdlib.h>

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
using testing::Not;
using transformers::AutoModel;
using transformers::AutoModelForCausalLM;
using transformers::AutoModelForSeq2SeqLM;
using transformers::AutoModelForSequenceClassification;
using transformers::AutoTokenizer;
using transformers::ConfigValue;
using transformers::PretrainedReport;

constexpr const char* kPointer =
    "version https://git-lfs.github.com/spec/v1\n"
    "oid sha256:4665a5ea423c2713d436b5ee50593a9640e0018c1550b5a0002f74190d6caea8\n"
    "size 90868376\n";
constexpr const char* kPointerMessage =
    "the file is a pointer of git-lfs: what it should hold has not been fetched";

TEST(LoadingMessages, WeightsThatGitLfsHasNotFetchedAreNamed) {
  const Saved saved(ModelTask::kBase, small_bert());
  const auto said = [&] {
    return error_from<CheckpointError>([&] { AutoModel::from_pretrained(saved.folder.text()); });
  };
  write_file(saved.weights(), kPointer);
  EXPECT_EQ(said(), std::string("CheckpointError: ") + kPointerMessage + "\n  at   " +
                        saved.weights().string() + "\n  try  run `git lfs pull` in its folder");
  fs::remove(saved.weights());
  const fs::path archive = saved.folder.path() / "pytorch_model.bin";
  write_file(archive, kPointer);
  EXPECT_THAT(said(), AllOf(HasSubstr(kPointerMessage), HasSubstr(archive.string())));
  fs::remove(archive);
  write_file(saved.folder.path() / "model.safetensors.index.json",
             R"({"weight_map": {"a": "model-00001-of-00001.safetensors"}})");
  const fs::path shard = saved.folder.path() / "model-00001-of-00001.safetensors";
  write_file(shard, kPointer);
  EXPECT_THAT(said(), AllOf(HasSubstr(kPointerMessage), HasSubstr(shard.string())));
}

TEST(LoadingMessages, SettingsAndTokenizersThatGitLfsHasNotFetchedAreNamed) {
  const CheckpointFolder folder;
  const auto said = [&] {
    return error_from<DataError>([&] { AutoTokenizer::from_pretrained(folder.text()); });
  };
  write_file(folder.path() / "tokenizer.json", kPointer);
  EXPECT_EQ(said(), std::string("DataError: ") + kPointerMessage + "\n  at   " + folder.text() +
                        "/tokenizer.json\n  try  run `git lfs pull` in its folder");
  fs::remove(folder.path() / "tokenizer.json");
  write_file(folder.path() / "vocab.txt", kPointer);
  EXPECT_THAT(said(), AllOf(HasSubstr(kPointerMessage), HasSubstr("vocab.txt")));
  write_file(folder.path() / "config.json", kPointer);
  EXPECT_THAT(error_from<DataError>([&] { AutoModel::from_pretrained(folder.text()); }),
              AllOf(HasSubstr(kPointerMessage), HasSubstr("config.json")));
}

TEST(LoadingMessages, OfManyNamesTenAreSaid) {
  const Saved saved(ModelTask::kBase, small_bert());
  NamedTensors tensors = saved.tensors();
  for (int i = 10; i < 35; ++i) tensors.insert("other." + std::to_string(i), at::ones({1}));
  saved.write(tensors);
  PretrainedReport report;
  (void)load<AutoModel>(saved, report);
  EXPECT_EQ(report.unexpected_keys.size(), 25U);
  EXPECT_THAT(report.message,
              testing::EndsWith("not used by this model: other.10, other.11, other.12, other.13, "
                                "other.14, other.15, other.16, other.17, other.18, other.19, ... "
                                "and 15 more"));
  const std::string said = error_from<CheckpointError>([&] {
    load<AutoModel>(saved, report, {.config = {{"hidden_size", int64_t{32}}}});
  });
  EXPECT_THAT(said, AllOf(HasSubstr("word_embeddings.weight [40, 16] in the files, [40, 32]"),
                          HasSubstr("; ... and "), Not(HasSubstr("pooler"))));
}

TEST(LoadingMessages, AreSaidByTheFirstRankAloneWhoeverStartedIt) {
  const Saved saved(ModelTask::kBase, small_bert());
  NamedTensors tensors = saved.tensors();
  tensors.insert("other", at::ones({1}));
  saved.write(tensors);
  const auto said_by = [&](const char* variable, const char* rank) {
    setenv(variable, rank, 1);
    testing::internal::CaptureStderr();
    AutoModel::from_pretrained(saved.folder.text());
    unsetenv(variable);
    return testing::internal::GetCapturedStderr();
  };
  for (const char* variable : {"RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK"}) {
    EXPECT_THAT(said_by(variable, "0"), HasSubstr("[rank 0] warning: ")) << variable;
    EXPECT_EQ(said_by(variable, "1"), "") << variable;
  }
}

TEST(LoadingMessages, AWrongOptionIsNotBlamedOnTheFile) {
  const auto said = [](ModelTask task, const ModelConfig& config, const std::string& key,
                       const ConfigValue& value) {
    const Saved saved(task, config);
    return error_from<UsageError>([&] {
      transformers::load_pretrained(task, saved.folder.text(), {.config = {{key, value}}});
    });
  };
  EXPECT_EQ(said(ModelTask::kBase, small_bert(), "num_hidden_layers", int64_t{-2}),
            "UsageError: \"num_hidden_layers\" is -2; it should be a whole number from 1 to "
            "2147483647\n  at   PretrainedOptions::config");
  EXPECT_EQ(said(ModelTask::kCausalLm, small_gpt2(), "n_layer", "two"),
            "UsageError: \"n_layer\" is \"two\"; it should be a whole number from 1 to "
            "2147483647\n  at   PretrainedOptions::config");
  EXPECT_EQ(said(ModelTask::kBase, small_llama(), "attention_dropout", 2.0),
            "UsageError: \"attention_dropout\" is 2.0; it should be a number from 0 to 1\n  at   "
            "PretrainedOptions::config");
}

TEST(LoadingMessages, OptionsThatDoNotGoWithTheFileAreNamed) {
  const auto said = [](const ModelConfig& config, const std::string& key,
                       const ConfigValue& value) {
    const Saved saved(ModelTask::kBase, config);
    return error_from<DataError>([&] {
      AutoModel::from_pretrained(saved.folder.text(), {.config = {{key, value}}});
    });
  };
  EXPECT_THAT(said(small_gpt2(), "n_head", int64_t{5}),
              HasSubstr("which 5 heads do not divide ('n_head' is that of "
                        "PretrainedOptions::config)"));
  EXPECT_THAT(said(small_bert(), "num_attention_heads", int64_t{5}),
              HasSubstr("among 5 attention heads ('num_attention_heads' is that of "
                        "PretrainedOptions::config)"));
  EXPECT_THAT(said(small_bert(), "hidden_act", "none"),
              HasSubstr("'hidden_act' in PretrainedOptions::config is 'none'"));
  EXPECT_THAT(said(small_bert(), "vocab_size", int64_t{2147483647}),
              HasSubstr("config.json, as PretrainedOptions::config changes it"));
}

TEST(LoadingMessages, AHeadThatTheConfigurationDoesNotTieIsNoSurprise) {
  const Saved saved(ModelTask::kSeq2SeqLm, small_t5());
  NamedTensors tensors = saved.tensors();
  tensors.insert("lm_head.weight", at::randn({40, 16}));
  saved.write(tensors);
  PretrainedReport report;
  (void)load<AutoModelForSeq2SeqLM>(saved, report);
  EXPECT_THAT(report.message,
              HasSubstr("in the files with values of their own, so not tied to the embeddings: "
                        "lm_head.weight"));
  saved.set("tie_word_embeddings", false);
  const auto model = load<AutoModelForSeq2SeqLM>(saved, report);
  EXPECT_THAT(report.message, IsEmpty());
  EXPECT_TRUE(at::equal(get_state_dict(*model)["lm_head.weight"], tensors["lm_head.weight"]));
  tensors.insert("encoder.embed_tokens.weight", at::randn({40, 16}));
  saved.write(tensors);
  (void)load<AutoModelForSeq2SeqLM>(saved, report);
  EXPECT_THAT(report.message, testing::EndsWith(": encoder.embed_tokens.weight"));
}

TEST(LoadingMessages, CommonNamesOfSettingsWorkInOptions) {
  const Saved saved(ModelTask::kCausalLm, small_gpt2());
  PretrainedReport report;
  const auto model =
      load<AutoModelForCausalLM>(saved, report, {.config = {{"num_hidden_layers", int64_t{1}}}});
  EXPECT_EQ(model->config().size("n_layer"), 1);
  EXPECT_EQ(model->config().size("num_hidden_layers"), 1);
  EXPECT_EQ(report.unexpected_keys.size(), 12U);
  EXPECT_THAT(report.missing_keys, IsEmpty());
}

TEST(LoadingMessages, NamesOfClassesMayHaveGaps) {
  ModelConfig config = small_bert();
  config.set("id2label.0", "good");
  config.set("id2label.7", "bad");
  const Saved saved(ModelTask::kSequenceClassification, config);
  PretrainedReport report;
  const auto model = load<AutoModelForSequenceClassification>(saved, report);
  EXPECT_EQ(model->config().num_labels(), 2);
  EXPECT_THAT(model->config().labels(), ElementsAre("good", "LABEL_1"));
  EXPECT_THAT(model->config().id2label(),
              ElementsAre(testing::Pair(0, "good"), testing::Pair(7, "bad")));
  const CheckpointFolder again;
  transformers::save_pretrained(*model, again.path());
  EXPECT_THAT(ModelConfig::from_file(again.path()).id2label(),
              ElementsAre(testing::Pair(0, "good"), testing::Pair(7, "bad")));
}

}  // namespace
}  // namespace accelerate::test
