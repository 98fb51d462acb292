// save_pretrained(): the folder that transformers reads.
#include <accelerate/safetensors.h>
#include <accelerate/torch_archive.h>
#include <accelerate/transformers/auto_model.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "golden/reference_data.h"
#include "transformers/checkpoints.h"
#include "transformers/encoder_models.h"
#include "unit/files/dcp_files.h"

namespace accelerate::test {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::Pair;
using transformers::save_pretrained;

TEST(SavePretrained, WritesTheSettingsOfTheModelThatItIs) {
  const CheckpointFolder folder;
  ModelConfig config = generating_gpt2();
  config.set("torch_dtype", "float32");
  config.set("_name_or_path", "elsewhere");
  config.set("my_own", int64_t{3});
  const auto model = random_model(ModelTask::kCausalLm, config);
  model->to(at::kBFloat16);
  save_pretrained(*model, folder.path());
  EXPECT_THAT(names_in(folder.path()),
              ElementsAre("config.json", "generation_config.json", "model.safetensors"));
  EXPECT_EQ(read_file(folder.path() / "config.json"), R"({
  "architectures": [
    "GPT2LMHeadModel"
  ],
  "bos_token_id": 1,
  "dtype": "bfloat16",
  "eos_token_id": 2,
  "initializer_range": 0.3,
  "model_type": "gpt2",
  "my_own": 3,
  "n_embd": 16,
  "n_head": 4,
  "n_layer": 2,
  "n_positions": 32,
  "pad_token_id": 0,
  "vocab_size": 40
}
)");
  EXPECT_EQ(read_file(folder.path() / "generation_config.json"), R"({
  "_from_model_config": true,
  "bos_token_id": 1,
  "eos_token_id": 2,
  "max_length": 30,
  "pad_token_id": 0
}
)");
  const SafetensorsFile file(folder.path() / "model.safetensors");
  EXPECT_THAT(file.metadata(), ElementsAre(Pair("format", "pt")));
  EXPECT_THAT(file.names(), Contains("transformer.wte.weight"));
  EXPECT_THAT(file.names(), Not(Contains("lm_head.weight")));
}

TEST(SavePretrained, WritesNamesOfLabelsInPlaceOfTheirNumber) {
  const CheckpointFolder folder;
  ModelConfig config = small_bert();
  config.set("num_labels", int64_t{3});
  save_pretrained(*random_model(ModelTask::kSequenceClassification, config), folder.path());
  const auto saved = ModelConfig::from_file(folder.path());
  EXPECT_FALSE(saved.has("num_labels"));
  EXPECT_EQ(saved.text("id2label.2"), "LABEL_2");
}

TEST(SavePretrained, WritesNothingOnOtherProcesses) {
  const CheckpointFolder folder;
  save_pretrained(*random_model(ModelTask::kBase, small_bert()), folder.path() / "new",
                  {.is_main_process = false});
  EXPECT_FALSE(fs::exists(folder.path() / "new"));
}

TEST(SavePretrained, ReplacesAnEarlierModelAndNothingElse) {
  const CheckpointFolder folder;
  write_file(folder.path() / "tokenizer.json", "{}");
  save_pretrained(*random_model(ModelTask::kCausalLm, small_gpt2()), folder.path(),
                  {.max_shard_size = "4KB"});
  EXPECT_THAT(names_in(folder.path()), Contains("model.safetensors.index.json"));
  const auto model = random_model(ModelTask::kBase, small_bert());
  save_pretrained(*model, folder.path());
  EXPECT_THAT(names_in(folder.path()),
              ElementsAre("config.json", "model.safetensors", "tokenizer.json"));
  expect_same_state(*transformers::AutoModel::from_pretrained(folder.text()), *model);
}

TEST(SavePretrained, GivesEachFileToTheFunctionOfTheCaller) {
  const CheckpointFolder folder;
  const auto model = random_model(ModelTask::kBase, small_bert());
  write_file(folder.path() / "model.safetensors", "of an earlier model");
  std::vector<std::string> files;
  save_pretrained(*model, folder.path(),
                  {.max_shard_size = "8KB",
                   .save_function = [&](const NamedTensors& tensors, const fs::path& path) {
                     files.push_back(path.filename().string());
                     accelerate::save(tensors, path);
                   }});
  EXPECT_GT(files.size(), 1U);
  EXPECT_FALSE(fs::exists(folder.path() / "model.safetensors"));
  expect_same_state(*transformers::AutoModel::from_pretrained(folder.text()), *model);
  files.clear();
  save_pretrained(*model, folder.path(),
                  {.save_function = [&](const NamedTensors& tensors, const fs::path& path) {
                    files.push_back(path.filename().string());
                    accelerate::save(tensors, path);
                  }});
  EXPECT_THAT(files, ElementsAre("model.safetensors"));
  EXPECT_THAT(names_in(folder.path()), ElementsAre("config.json", "model.safetensors"));
}

TEST(SavePretrained, RefusesAFunctionThatWritesAnotherFormatUnderThatName) {
  const CheckpointFolder folder;
  const auto model = random_model(ModelTask::kBase, small_bert());
  EXPECT_THAT(error_from<CheckpointError>([&] {
                save_pretrained(*model, folder.path(),
                                {.save_function = [](const NamedTensors&, const fs::path& path) {
                                  save_torch_archive(path, TorchValue("an archive"));
                                }});
              }),
              HasSubstr("what save_function has written is not a safetensors file"));
}

TEST(SavePretrained, SaysWhatCannotBeReplaced) {
  const CheckpointFolder folder;
  write_file(folder.path() / "generation_config.json" / "inside", "a folder that is not empty");
  EXPECT_EQ(error_from<CheckpointError>([&] {
              save_pretrained(*random_model(ModelTask::kBase, small_bert()), folder.path());
            }),
            "CheckpointError: the model cannot be saved: Directory not empty\n  at   " +
                (folder.path() / "generation_config.json").string());
}

TEST(SavePretrained, RefusesAFileForAFolder) {
  const CheckpointFolder folder;
  write_file(folder.path() / "file", "");
  EXPECT_THROW(
      save_pretrained(*random_model(ModelTask::kBase, small_bert()), folder.path() / "file"),
      UsageError);
}

std::shared_ptr<PretrainedModel> load_recorded(const fs::path& folder) {
  const std::string name = ModelConfig::from_file(folder).architectures().front();
  for (const auto& each : transformers::registered_architectures()) {
    if (each.name == name) return transformers::load_pretrained(each.task, folder.string());
  }
  throw std::runtime_error("no architecture is called " + name);
}

// The bytes of all tensors of the shard that has the most.
uintmax_t largest_shard(const fs::path& folder) {
  uintmax_t largest = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".safetensors") continue;
    uintmax_t bytes = 0;
    const SafetensorsFile file(entry.path());
    for (const std::string& name : file.names()) bytes += file.tensor(name).nbytes();
    largest = std::max(largest, bytes);
  }
  return largest;
}

std::vector<std::string> names_without_shards(const fs::path& folder) {
  std::vector<std::string> names;
  for (const std::string& name : names_in(folder)) {
    if (!name.ends_with(".safetensors")) names.push_back(name);
  }
  return names;
}

// Which tensors go together is another matter: transformers sorts them first.
TEST(SavePretrained, WritesShardsWithAnIndexThatCountsAsTransformersDoes) {
  const auto index = [](const fs::path& path) {
    return nlohmann::json::parse(read_file(path / "model.safetensors.index.json"));
  };
  int models = 0;
  for (const fs::path& recorded : fixture_folders("hf_models")) {
    if (!fs::exists(recorded / "model.safetensors.index.json")) continue;
    SCOPED_TRACE(recorded.string());
    const CheckpointFolder folder;
    const uintmax_t kilobytes = (largest_shard(recorded) + 999) / 1000;
    const uintmax_t limit = 1000 * kilobytes;
    save_pretrained(*load_recorded(recorded), folder.path(),
                    {.max_shard_size = std::to_string(kilobytes) + "KB"});
    EXPECT_LE(largest_shard(folder.path()), limit);
    EXPECT_EQ(names_without_shards(folder.path()), names_without_shards(recorded));
    EXPECT_EQ(index(folder.path())["metadata"], index(recorded)["metadata"]);
    const ModelStateDict before = load_state_dict(recorded / "model.safetensors.index.json");
    const ModelStateDict after = load_state_dict(folder.path() / "model.safetensors.index.json");
    EXPECT_EQ(after.size(), before.size());
    for (const auto& item : before) EXPECT_TRUE(at::equal(item.value(), after[item.key()]));
    ++models;
  }
  EXPECT_GT(models, 0) << "no model in shards is recorded";
}

// Whatever was recorded: the same tensors, the same settings.
TEST(SavePretrained, WritesRecordedModelsAsTheyWere) {
  int models = 0;
  for (const fs::path& recorded : fixture_folders("hf_models")) {
    if (!fs::exists(recorded / "io.json")) continue;
    SCOPED_TRACE(recorded.string());
    const CheckpointFolder folder;
    save_pretrained(*load_recorded(recorded), folder.path());
    const SafetensorsFile before(recorded / "model.safetensors");
    const SafetensorsFile after(folder.path() / "model.safetensors");
    EXPECT_EQ(after.names(), before.names());
    EXPECT_EQ(after.metadata(), before.metadata());
    for (const std::string& tensor : before.names()) {
      EXPECT_EQ(after.info(tensor).dtype, before.info(tensor).dtype);
      EXPECT_TRUE(at::equal(after.tensor(tensor), before.tensor(tensor))) << tensor;
    }
    for (const char* file : {"config.json", "generation_config.json"}) {
      ASSERT_EQ(fs::exists(folder.path() / file), fs::exists(recorded / file));
      if (fs::exists(recorded / file)) {
        EXPECT_EQ(read_file(folder.path() / file), read_file(recorded / file));
      }
    }
    ++models;
  }
  EXPECT_GT(models, 0);
}

// As the folder of a trainer in Python has it that saves shards alone: config.json beside
// .metadata.
TEST(FromPretrained, TakesTheShardsThatFsdpOfPythonHasLeft) {
  const CheckpointFolder folder;
  const auto model = random_model(ModelTask::kCausalLm, generating_gpt2());
  save_pretrained(*model, folder.path());
  DcpFiles shards;
  for (const auto& item : load_state_dict(folder.path() / "model.safetensors")) {
    const at::Tensor& tensor = item.value();
    const int64_t half = (tensor.size(0) + 1) / 2;
    const std::vector<uint64_t> shape(tensor.sizes().begin(), tensor.sizes().end());
    shards.tensors.push_back({"model." + item.key(), py::kFloat, shape, {}});
    shards.paths["model." + item.key()] = {"model", item.key()};
    for (const int rank : {0, 1}) {
      const at::Tensor part =
          tensor.slice(0, rank * half, std::min(tensor.size(0), (rank + 1) * half)).contiguous();
      std::vector<uint64_t> start(shape.size());
      start[0] = static_cast<uint64_t>(rank * half);
      shards.add_chunk(start, {part.sizes().begin(), part.sizes().end()},
                       {static_cast<const char*>(part.data_ptr()), part.nbytes()}, rank);
    }
  }
  std::filesystem::remove(folder.path() / "model.safetensors");
  shards.write(folder.path());
  const auto loaded = transformers::AutoModelForCausalLM::from_pretrained(folder.text());
  for (const auto& item : loaded->named_parameters()) {
    EXPECT_TRUE(torch::equal(item.value(), model->named_parameters()[item.key()])) << item.key();
  }
}

}  // namespace
}  // namespace accelerate::test
