// Shards that Python wrote, merged: the same tensors as in its one file.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>

#include "files/merge/merge_weights.h"
#include "files/safetensors/safetensors_header.h"
#include "golden/reference_data.h"
#include "unit/files/safetensors_files.h"

namespace accelerate::files {
namespace {

namespace fs = std::filesystem;

struct Stored {
  TensorDtype dtype;
  std::vector<uint64_t> shape;
  std::string bytes;
  bool operator==(const Stored&) const = default;
};

std::map<std::string, Stored> tensors_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string content{std::istreambuf_iterator<char>(file), {}};
  const SafetensorsHeader header = parse_safetensors_header(test::bytes_of(content), path.string());
  std::map<std::string, Stored> tensors;
  for (const SafetensorsEntry& entry : header.entries) {
    tensors[entry.name] = {
        entry.dtype, entry.shape,
        content.substr(header.data_begin + entry.begin, entry.end - entry.begin)};
  }
  return tensors;
}

using MergeFixtures = test::ScratchFolder;

TEST_F(MergeFixtures, ShardsOfPythonBecomeTheFileThatPythonWritesOfTheSameModel) {
  const std::string ending = "_sharded";
  int models = 0;
  for (const fs::path& sharded : test::fixture_folders("hf_models")) {
    const std::string name = sharded.filename();
    if (!name.ends_with(ending)) continue;
    SCOPED_TRACE(name);
    const std::string plain = name.substr(0, name.size() - ending.size());
    const fs::path one = folder_ / plain;
    merge_safetensors(sharded, one);
    const auto merged = tensors_of(one / "model.safetensors");
    const auto whole = tensors_of(sharded.parent_path() / plain / "model.safetensors");
    EXPECT_FALSE(merged.empty());
    EXPECT_TRUE(merged == whole);
    // Spread again, tensor by tensor.
    const uint64_t third = fs::file_size(one / "model.safetensors") / 3;
    merge_safetensors(one, folder_ / (plain + "_again"), {.max_shard_bytes = third});
    const fs::path once_more = folder_ / (plain + "_once_more.safetensors");
    merge_safetensors(folder_ / (plain + "_again"), once_more);
    EXPECT_EQ(fs::file_size(once_more), fs::file_size(one / "model.safetensors"));
    EXPECT_TRUE(tensors_of(once_more) == whole);
    ++models;
  }
  EXPECT_GT(models, 0) << "no folder of hf_models ends in " << ending;
}

// Every model in safetensors files that the recorded states hold.
TEST_F(MergeFixtures, EveryModelOfARecordedStateIsMergedWithAllItsTensors) {
  int merged = 0;
  for (const fs::path& state : test::fixture_folders("accelerate_state")) {
    std::map<std::string, Stored> all;
    for (const auto& file : fs::directory_iterator(state)) {
      if (file.path().extension() == ".safetensors" &&
          is_model_file(file.path().filename().string(), "model", ".safetensors")) {
        all.merge(tensors_of(file.path()));
      }
    }
    if (all.empty()) continue;
    const fs::path target = folder_ / state.filename();
    merge_safetensors(state, target);
    EXPECT_TRUE(tensors_of(target / "model.safetensors") == all) << state;
    ++merged;
  }
  EXPECT_GT(merged, 0);
}

}  // namespace
}  // namespace accelerate::files
