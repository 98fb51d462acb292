// Shards that Python wrote, merged: the same tensors as in its one file.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>

#include "files/merge_weights.h"
#include "files/safetensors_header.h"
#include "golden/reference_data.h"
#include "unit/safetensors_files.h"

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
  const fs::path models = test::fixtures_folder().path / "hf_models";
  if (!fs::exists(models / "gpt2_sharded")) GTEST_SKIP() << "no " << models;
  merge_safetensors(models / "gpt2_sharded", folder_ / "gpt2");
  const auto merged = tensors_of(folder_ / "gpt2/model.safetensors");
  const auto whole = tensors_of(models / "gpt2/model.safetensors");
  EXPECT_GT(merged.size(), 20U);
  EXPECT_TRUE(merged == whole);
  // Spread again as it was, tensor by tensor.
  merge_safetensors(folder_ / "gpt2", folder_ / "again", {.max_shard_bytes = 50'000});
  merge_safetensors(folder_ / "again", folder_ / "once_more.safetensors");
  EXPECT_EQ(fs::file_size(folder_ / "once_more.safetensors"),
            fs::file_size(folder_ / "gpt2/model.safetensors"));
  EXPECT_TRUE(tensors_of(folder_ / "once_more.safetensors") == whole);
}

// Every model in safetensors files that the recorded states hold.
TEST_F(MergeFixtures, EveryModelOfARecordedStateIsMergedWithAllItsTensors) {
  const fs::path states = test::fixtures_folder().path / "accelerate_state";
  if (!fs::exists(states)) GTEST_SKIP() << "no " << states;
  int merged = 0;
  for (const auto& entry : fs::directory_iterator(states)) {
    std::map<std::string, Stored> all;
    for (const auto& file : fs::directory_iterator(entry.path())) {
      if (file.path().extension() == ".safetensors" &&
          is_model_file(file.path().filename().string(), "model", ".safetensors")) {
        all.merge(tensors_of(file.path()));
      }
    }
    if (all.empty()) continue;
    const fs::path target = folder_ / entry.path().filename();
    merge_safetensors(entry.path(), target);
    EXPECT_TRUE(tensors_of(target / "model.safetensors") == all) << entry.path();
    ++merged;
  }
  EXPECT_GT(merged, 0);
}

}  // namespace
}  // namespace accelerate::files
