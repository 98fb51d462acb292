// Models whose files are links: in a folder of one's own, and in the cache of the Hugging Face hub.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include "accelerate/model_files.h"
#include "unit/checkpoint/model_files_models.h"
#include "unit/files/safetensors_files.h"

namespace accelerate {
namespace {

namespace fs = std::filesystem;
using test::error_of;
using testing::HasSubstr;

class ModelFilesLinks : public test::ScratchFolder {
 protected:
  // snapshots/rev/<name> -> ../../blobs/<number> for each file of the model, as the hub does.
  void make_cache(const SaveModelOptions& options) {
    save_model(*saved_, folder_ / "model", options);
    fs::create_directories(folder_ / "blobs");
    fs::create_directories(snapshot_ = folder_ / "snapshots/rev");
    int number = 0;
    for (const auto& entry : fs::directory_iterator(folder_ / "model")) {
      const std::string blob = std::to_string(++number);
      fs::rename(entry.path(), folder_ / "blobs" / blob);
      fs::create_symlink("../../blobs/" + blob, snapshot_ / entry.path().filename());
    }
  }

  void expect_loads_only_if_links_are_followed() {
    test::SmallNet model;
    const auto error = error_of<CheckpointError>(
        [&] { load_checkpoint_in_model(*model, snapshot_, {.strict = true}); });
    EXPECT_THAT(error.message(), HasSubstr("is a link out of the folder"));
    EXPECT_THAT(error.hint(), HasSubstr("follow_links"));
    EXPECT_THAT(error_of<CheckpointError>([&] { load_state_dict(snapshot_); }).message(),
                HasSubstr("is a link out of the folder"));

    load_checkpoint_in_model(*model, snapshot_, {.strict = true, .follow_links = true});
    const ModelStateDict state = load_state_dict(snapshot_, {.follow_links = true});
    const ModelStateDict loaded = get_state_dict(*model);
    for (const auto& item : get_state_dict(*saved_)) {
      EXPECT_TRUE(torch::equal(item.value(), loaded[item.key()])) << item.key();
      EXPECT_TRUE(torch::equal(item.value(), state[item.key()])) << item.key();
    }
  }

  test::SmallNet saved_;
  fs::path snapshot_;
};

TEST_F(ModelFilesLinks, AFileOfTheHubCacheIsLoadedIfLinksAreFollowed) {
  make_cache({});
  expect_loads_only_if_links_are_followed();
}

TEST_F(ModelFilesLinks, ShardsOfTheHubCacheAreLoadedIfLinksAreFollowed) {
  make_cache({.max_shard_size = 60});
  expect_loads_only_if_links_are_followed();
}

TEST_F(ModelFilesLinks, ALinkInsideTheFolderOrNamedByTheCallerIsFollowedAlways) {
  save_model(*saved_, folder_);
  fs::rename(folder_ / "model.safetensors", folder_ / "weights");
  fs::create_symlink("weights", folder_ / "model.safetensors");
  test::SmallNet model;
  load_checkpoint_in_model(*model, folder_, {.strict = true});
  make_cache({});
  load_checkpoint_in_model(*model, snapshot_ / "model.safetensors", {.strict = true});
}

TEST_F(ModelFilesLinks, MergedWeightsLoadAsTheModelTheyAreOf) {
  save_model(*saved_, folder_ / "shards", {.max_shard_size = 60});
  const MergeWeightsReport report = merge_weights(folder_ / "shards", folder_ / "one");
  EXPECT_EQ(report.path, folder_ / "one/model.safetensors");
  EXPECT_EQ(report.files, 1U);
  test::SmallNet model;
  load_checkpoint_in_model(*model, folder_ / "one", {.strict = true});
  for (const auto& item : get_state_dict(*saved_)) {
    EXPECT_TRUE(torch::equal(item.value(), get_state_dict(*model)[item.key()])) << item.key();
  }
  EXPECT_EQ(merge_weights(folder_ / "one", folder_ / "two", {.max_shard_size = 1}).files,
            report.tensors);
}

}  // namespace
}  // namespace accelerate
