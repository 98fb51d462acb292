// What sharded runs of Python have left, loaded into models.
#include <accelerate/model_files.h>
#include <accelerate/safetensors.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "accelerate/errors.h"
#include "golden/recorded_states.h"
#include "golden/reference_data.h"
#include "support/error_of.h"

namespace accelerate::test {
namespace {

namespace fs = std::filesystem;

// Folders of the recordings that hold a model and what it should be.
std::vector<std::pair<fs::path, fs::path>> sharded_models() {
  std::vector<std::pair<fs::path, fs::path>> all;
  for (const auto& entry : fs::recursive_directory_iterator(fixtures_folder().path)) {
    if (entry.path().filename() == "expected_model.safetensors") {
      all.emplace_back(entry.path().parent_path(), entry.path());
    }
  }
  return all;
}

TEST(ShardedRunModels, AreLoadedIntoAModelWithoutAStepInBetween) {
  const auto models = sharded_models();
  EXPECT_FALSE(models.empty());
  for (const auto& [folder, expected] : models) {
    SCOPED_TRACE(folder);
    const SafetensorsFile recorded(expected);
    NamedTensorModule model;
    for (const std::string& name : recorded.names()) {
      const at::Tensor tensor = recorded.tensor(name);
      model.put(name, torch::zeros_like(tensor), tensor.is_floating_point());
    }
    const LoadReport report = load_checkpoint_in_model(model, folder, {.strict = true});
    EXPECT_TRUE(report.missing_keys.empty());
    for (const auto& item : get_state_dict(model)) {
      EXPECT_TRUE(torch::equal(item.value(), recorded.tensor(item.key()))) << item.key();
    }
    const ModelStateDict all = load_state_dict(folder);
    EXPECT_EQ(all.size(), recorded.names().size());
  }
}

TEST(ShardedRunModels, OfDeepSpeedAreMergedByTheirTag) {
  std::string pattern = (fs::temp_directory_path() / "merged-XXXXXX").string();
  const fs::path scratch = mkdtemp(pattern.data());
  for (const fs::path& run : fixture_folders("deepspeed_checkpoints")) {
    std::string tag;
    std::ifstream(run / "latest") >> tag;
    const MergeWeightsReport report = merge_weights(
        run, scratch / run.filename(), {.deepspeed_tag = tag, .exclude_frozen_parameters = true});
    EXPECT_TRUE(report.left_out.empty());
    EXPECT_GT(report.tensors, 0U);
    const auto error =
        error_of<CheckpointError>([&] { merge_weights(run, scratch, {.deepspeed_tag = "none"}); });
    EXPECT_EQ(error.message(), "there is no checkpoint of DeepSpeed");
  }
  fs::remove_all(scratch);
}

TEST(ShardedRunModels, TheStateOfAnOptimizerIsNotAModel) {
  int optimizers = 0;
  for (const auto& [folder, expected] : sharded_models()) {
    const fs::path optimizer = folder / "optimizer_0";
    if (!fs::exists(optimizer)) continue;
    const auto error = error_of<CheckpointError>([&] { load_state_dict(optimizer); });
    EXPECT_EQ(error.message(), "the folder holds the state of an optimizer, not a model");
    ++optimizers;
  }
  EXPECT_GT(optimizers, 0);
}

}  // namespace
}  // namespace accelerate::test
