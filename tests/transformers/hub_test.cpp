// find_pretrained(): names on the Hugging Face hub in the local cache.
#include <accelerate/transformers/auto_model.h>
#include <gmock/gmock.h>

#include <memory>
#include <string>
#include <vector>

#include "transformers/checkpoints.h"
#include "transformers/encoder_models.h"

namespace accelerate::test {
namespace {

using testing::HasSubstr;
using transformers::AutoModel;
using transformers::find_pretrained;

constexpr const char* kCommit = "0123456789abcdef0123456789abcdef01234567";

// No variable of the machine is seen.
class HubCache : public testing::Test {
 protected:
  HubCache() {
    for (const char* name :
         {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"}) {
      variables_.push_back(std::make_unique<Variable>(name, std::nullopt));
    }
    set("HF_HOME", home());
  }

  void set(const std::string& name, const std::optional<std::string>& value) {
    variables_.push_back(std::make_unique<Variable>(name, value));
  }
  std::string home() const { return folder_.text(); }

  static void add(const fs::path& cache, const std::string& repository,
                  const std::string& commit = kCommit, const std::string& reference = "main") {
    fs::create_directories(cache / repository / "snapshots" / commit);
    write_file(cache / repository / "refs" / reference, commit);
  }

  CheckpointFolder folder_{};

 private:
  std::vector<std::unique_ptr<Variable>> variables_{};
};

TEST_F(HubCache, TakesAFolderAsItIs) { EXPECT_EQ(find_pretrained(home()), folder_.path()); }

TEST_F(HubCache, FindsANameByTheNoteOfItsBranch) {
  const fs::path cache = folder_.path() / "hub";
  add(cache, "models--org--some.model_1");
  EXPECT_EQ(find_pretrained("org/some.model_1"),
            cache / "models--org--some.model_1" / "snapshots" / kCommit);
  add(cache, "models--gpt2");
  EXPECT_EQ(find_pretrained("gpt2"), cache / "models--gpt2" / "snapshots" / kCommit);
}

TEST_F(HubCache, FindsBranchesTagsAndCommits) {
  const fs::path cache = folder_.path() / "hub";
  const std::string other(40, 'b');
  add(cache, "models--org--name");
  add(cache, "models--org--name", other, "v1.0");
  add(cache, "models--org--name", other, "refs/pr/3");
  const fs::path snapshots = cache / "models--org--name" / "snapshots";
  EXPECT_EQ(find_pretrained("org/name"), snapshots / kCommit);
  EXPECT_EQ(find_pretrained("org/name", "v1.0"), snapshots / other);
  EXPECT_EQ(find_pretrained("org/name", "refs/pr/3"), snapshots / other);
  EXPECT_EQ(find_pretrained("org/name", other), snapshots / other);
}

TEST_F(HubCache, LooksWhereTheVariablesSay) {
  const CheckpointFolder other;
  set("HF_HOME", std::nullopt);
  set("XDG_CACHE_HOME", other.text());
  add(other.path() / "huggingface" / "hub", "models--a--b");
  EXPECT_EQ(find_pretrained("a/b"),
            other.path() / "huggingface" / "hub" / "models--a--b" / "snapshots" / kCommit);
  set("HF_HOME", (other.path() / "home").string());
  add(other.path() / "home" / "hub", "models--a--b");
  EXPECT_EQ(find_pretrained("a/b").parent_path().parent_path().parent_path(),
            other.path() / "home" / "hub");
  set("HF_HUB_CACHE", (other.path() / "cache").string());
  add(other.path() / "cache", "models--a--b");
  EXPECT_EQ(find_pretrained("a/b").parent_path().parent_path().parent_path(),
            other.path() / "cache");
}

TEST_F(HubCache, SaysWhereItLookedAndHowToGetTheModel) {
  EXPECT_EQ(error_from<DataError>([] { find_pretrained("org/name"); }),
            "DataError: \"org/name\" is neither a folder nor a model in the local cache of the "
            "Hugging Face hub; nothing is downloaded\n  at   " +
                home() +
                "/hub/models--org--name\n  try  `hf download org/name` downloads it; "
                "HF_HOME or HF_HUB_CACHE name the folder of the cache");
  add(folder_.path() / "hub", "models--org--name");
  EXPECT_EQ(error_from<DataError>([] { find_pretrained("org/name", "v2"); }),
            "DataError: the cache has no revision \"v2\" of \"org/name\"; it has " +
                std::string(kCommit) + ", main\n  at   " + home() +
                "/hub/models--org--name/snapshots\n  try  `hf download org/name --revision v2` "
                "downloads it; HF_HOME or HF_HUB_CACHE name the folder of the cache");
}

TEST_F(HubCache, SaysThatANoteNamesASnapshotThatIsNotThere) {
  const fs::path repository = folder_.path() / "hub" / "models--org--name";
  add(folder_.path() / "hub", "models--org--name");
  const std::string lost(40, 'c');
  write_file(repository / "refs" / "main", lost);
  EXPECT_EQ(error_from<DataError>([] { find_pretrained("org/name"); }),
            "DataError: the cache notes that \"main\" of \"org/name\" is the snapshot " + lost +
                ", but that is not there; it has " + kCommit + ", main\n  at   " +
                (repository / "snapshots" / lost).string() +
                "\n  try  `hf download org/name` downloads it; HF_HOME or HF_HUB_CACHE name the "
                "folder of the cache");
}

TEST_F(HubCache, RefusesNamesThatAreNone) {
  for (const char* name :
       {"", "a/../b", "../x", "a/b/c", "a//b", "/nowhere/at/all", "a b", "org/na\nme", "a/."}) {
    EXPECT_THAT(error_from<DataError>([&] { find_pretrained(name); }),
                HasSubstr("is not a folder, and cannot be a name on the Hugging Face hub"))
        << name;
  }
  for (const char* revision : {"", "..", "a/../b", "/etc/passwd", "a b"}) {
    EXPECT_THROW(find_pretrained("org/name", revision), UsageError) << revision;
  }
  write_file(folder_.path() / "model.safetensors", "");
  EXPECT_THAT(error_from<DataError>([&] { find_pretrained(home() + "/model.safetensors"); }),
              HasSubstr("is a file; name the folder that contains it"));
}

TEST_F(HubCache, TakesNoWayOutOfTheCacheFromANote) {
  const fs::path repository = folder_.path() / "hub" / "models--org--name";
  fs::create_directories(repository / "snapshots");
  write_file(repository / "refs" / "main", "../../../..");
  EXPECT_THAT(error_from<DataError>([] { find_pretrained("org/name"); }),
              HasSubstr("should hold the name of a commit, it holds \"../../../..\""));
  write_file(repository / "refs" / "main", "");
  EXPECT_THROW(find_pretrained("org/name"), DataError);
}

// The files of a snapshot are links to blobs/<hash>.
TEST_F(HubCache, FollowsTheLinksOfASnapshotAndNoOthers) {
  const auto model = random_model(ModelTask::kBase, small_bert());
  const fs::path cache = folder_.path() / "hub";
  add(cache, "models--org--name");
  const fs::path repository = cache / "models--org--name";
  const fs::path snapshot = repository / "snapshots" / kCommit;
  fs::create_directories(repository / "blobs");
  for (const char* size : {"50GB", "5KB"}) {
    const CheckpointFolder plain;
    transformers::save_pretrained(*model, plain.path(), {.max_shard_size = size});
    fs::remove_all(snapshot);
    fs::create_directories(snapshot);
    for (const std::string& name : names_in(plain.path())) {
      fs::copy(plain.path() / name, repository / "blobs" / ("hash-of-" + name),
               fs::copy_options::overwrite_existing);
      fs::create_symlink("../../blobs/hash-of-" + name, snapshot / name);
    }
    expect_same_state(*AutoModel::from_pretrained("org/name"), *model);
    expect_same_state(*AutoModel::from_pretrained(snapshot.string()), *model);
  }
  const CheckpointFolder other;
  fs::copy(snapshot / "config.json", other.path() / "config.json");
  fs::create_symlink(repository / "blobs" / "hash-of-model.safetensors",
                     other.path() / "model.safetensors");
  EXPECT_THROW(AutoModel::from_pretrained(other.text()), CheckpointError);
}

}  // namespace
}  // namespace accelerate::test
