// What sharded runs of Python have left, merged: the tensors that Python puts together.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "files/dcp/dcp_folder.h"
#include "files/merge/merge_weights.h"
#include "files/safetensors/safetensors_header.h"
#include "golden/reference_data.h"
#include "unit/files/safetensors_files.h"

namespace accelerate::files {
namespace {

namespace fs = std::filesystem;

struct WholeTensor {
  TensorDtype dtype;
  std::vector<uint64_t> shape;
  std::string bytes;
  bool operator==(const WholeTensor&) const = default;
};

struct WholeFile {
  std::map<std::string, WholeTensor> tensors;  // under all their names
  std::map<std::string, std::string> metadata;
};

WholeFile whole_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string content{std::istreambuf_iterator<char>(file), {}};
  const SafetensorsHeader header = parse_safetensors_header(test::bytes_of(content), path.string());
  WholeFile whole{.tensors = {}, .metadata = header.metadata};
  for (const SafetensorsEntry& entry : header.entries) {
    whole.tensors[entry.name] = {
        entry.dtype, entry.shape,
        content.substr(header.data_begin + entry.begin, entry.end - entry.begin)};
  }
  for (const auto& [alias, name] : aliases_of(header)) whole.tensors[alias] = whole.tensors[name];
  return whole;
}

void expect_tensors(const WholeFile& merged, const fs::path& recorded) {
  const WholeFile expected = whole_file(recorded);
  EXPECT_FALSE(expected.tensors.empty()) << recorded;
  std::set<std::string> names;
  for (const auto& [name, tensor] : expected.tensors) {
    names.insert(name);
    const auto found = merged.tensors.find(name);
    ASSERT_NE(found, merged.tensors.end()) << name << " is missing";
    EXPECT_EQ(found->second.dtype, tensor.dtype) << name;
    EXPECT_EQ(found->second.shape, tensor.shape) << name;
    EXPECT_TRUE(found->second.bytes == tensor.bytes) << name << " has other numbers";
  }
  for (const auto& [name, tensor] : merged.tensors) {
    EXPECT_TRUE(names.contains(name)) << name << " is not in " << recorded;
  }
}

// All folders of the recordings that hold a file of that name.
std::vector<fs::path> recordings_with(const std::string& file) {
  std::vector<fs::path> folders;
  for (const auto& entry : fs::recursive_directory_iterator(test::fixtures_folder().path)) {
    if (entry.path().filename() == file) folders.push_back(entry.path().parent_path());
  }
  return folders;
}

bool is_recorded_by_dcp(const fs::path& folder) {
  return is_dcp_folder(folder / dcp_model_folder(0));
}

class ShardedRuns : public test::ScratchFolder {
 protected:
  WholeFile merged(const fs::path& source) {
    const fs::path target = folder_ / ("merged_" + std::to_string(targets_++));
    const MergeReport report = merge_safetensors(source, target);
    EXPECT_EQ(report.left_out, std::vector<std::string>());
    return whole_file(target / "model.safetensors");
  }

 private:
  int targets_ = 0;
};

TEST_F(ShardedRuns, AModelOfTorchDistributedCheckpointIsTheOneThatPythonPutsTogether) {
  int models = 0;
  for (const fs::path& run : recordings_with("expected_model.safetensors")) {
    if (!is_recorded_by_dcp(run)) continue;
    SCOPED_TRACE(run);
    expect_tensors(merged(run / dcp_model_folder(0)), run / "expected_model.safetensors");
    // As a saved state of FSDP has it.
    expect_tensors(merged(run), run / "expected_model.safetensors");
    ++models;
  }
  EXPECT_GT(models, 0);
}

TEST_F(ShardedRuns, AnOptimizerOfTorchDistributedCheckpointHasItsStateAndItsGroups) {
  int optimizers = 0;
  for (const fs::path& run : recordings_with("expected_optimizer.safetensors")) {
    SCOPED_TRACE(run);
    const WholeFile state = merged(run / dcp_optimizer_folder(0));
    expect_tensors(state, run / "expected_optimizer.safetensors");

    const auto groups = nlohmann::json::parse(state.metadata.at(kParamGroupsKey));
    std::set<std::string> trained;
    for (const auto& group : groups) {
      EXPECT_TRUE(group.at("lr").is_number()) << group;
      for (const auto& name : group.at("params")) trained.insert(name);
    }
    const WholeFile model = whole_file(run / "expected_model.safetensors");
    for (const std::string& name : trained) EXPECT_TRUE(model.tensors.contains(name)) << name;
    for (const auto& [name, tensor] : state.tensors) {
      EXPECT_TRUE(trained.contains(name.substr(0, name.rfind('.')))) << name;
    }
    ++optimizers;
  }
  EXPECT_GT(optimizers, 0);
}

TEST_F(ShardedRuns, ACheckpointOfDeepSpeedHasTheWeightsThatItsOwnToolPutsTogether) {
  std::set<int> stages;
  for (const fs::path& run : test::fixture_folders("deepspeed_checkpoints")) {
    SCOPED_TRACE(run);
    const fs::path expected = run / "expected_model.safetensors";
    expect_tensors(merged(run), expected);
    std::string tag;
    std::ifstream(run / "latest") >> tag;
    expect_tensors(merged(run / tag), expected);
    const fs::path by_tag = folder_ / ("by_tag_" + std::to_string(stages.size()));
    merge_safetensors(run, by_tag, {.deepspeed_tag = tag});
    expect_tensors(whole_file(by_tag / "model.safetensors"), expected);
    std::ifstream meta(run / "meta.json");
    stages.insert(nlohmann::json::parse(meta).at("stage").get<int>());
  }
  EXPECT_FALSE(stages.empty());
}

}  // namespace
}  // namespace accelerate::files
