// Finding and reading checkpoints.
#include "files/manifest/checkpoint_directory.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include "unit/files/checkpoint_directory_files.h"

namespace accelerate::files {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;

class CheckpointDirectoryTest : public CheckpointFolder {};

TEST_F(CheckpointDirectoryTest, TheListIsInTheOrderOfTheNumbersAndSaysWhatIsWrong) {
  for (const int64_t step : {2, 10, 9, 1}) {
    save(folder() / ("checkpoint_" + std::to_string(step)), step);
  }
  save(folder() / "best", 9);
  std::filesystem::create_directory(folder() / "logs");
  std::filesystem::create_directory(folder() / "runs_1");
  std::filesystem::create_directory(folder() / "checkpoint_3");
  std::filesystem::create_directory(folder() / ".checkpoint_4.tmp-0123456789abcdef");
  folder_.write("checkpoint_5", "a file");
  std::filesystem::remove(folder() / "checkpoint_9" / "model.safetensors");

  std::vector<std::string> lines;
  for (const CheckpointEntry& entry : list_checkpoints(folder())) {
    lines.push_back(entry.name + ": " + entry.problem);
    EXPECT_EQ(entry.directory, folder() / entry.name);
    EXPECT_EQ(entry.manifest.has_value(), entry.name != "checkpoint_3") << entry.name;
    EXPECT_EQ(entry.number.has_value(), entry.name != "best");
  }
  EXPECT_THAT(lines,
              ElementsAre("checkpoint_1: ", "checkpoint_2: ",
                          "checkpoint_3: manifest.json: the file cannot be opened: No such file or "
                          "directory",
                          "checkpoint_9: model.safetensors: the file cannot be opened: No such "
                          "file or directory",
                          "checkpoint_10: ", "best: "));
}

TEST_F(CheckpointDirectoryTest, TheNewestIsTheLargestNumberThatIsComplete) {
  EXPECT_FALSE(newest_complete(folder()));
  EXPECT_FALSE(newest_complete(folder() / "missing"));
  for (const int64_t step : {8, 9, 10, 11}) {
    save(folder() / ("checkpoint_" + std::to_string(step)), step);
  }
  save(folder() / "checkpoint_x", 12);
  save(folder() / "zz_99", 99);
  EXPECT_EQ(newest_complete(folder())->name, "checkpoint_11");
  std::filesystem::resize_file(folder() / "checkpoint_11" / "optimizer.bin", 5);
  EXPECT_EQ(newest_complete(folder())->name, "checkpoint_10");
  // The size is right, the bytes are not.
  folder_.write(
      "checkpoint_10/optimizer.bin",
      std::string(std::filesystem::file_size(folder() / "checkpoint_10/optimizer.bin"), 'x'));
  EXPECT_EQ(newest_complete(folder())->name, "checkpoint_10");
  EXPECT_EQ(newest_complete(folder(), {.data_checksums = true})->name, "checkpoint_9");
}

TEST_F(CheckpointDirectoryTest, AFolderThatMayNotBeLookedIntoHidesNoOther) {
  save(folder() / "checkpoint_1", 1);
  save(folder() / "checkpoint_2", 2);
  for (const char* name : {"lost+found", "checkpoint_2"}) {
    std::filesystem::create_directories(folder() / name);
    std::filesystem::permissions(folder() / name, std::filesystem::perms::none);
  }
  std::filesystem::permissions(folder(), std::filesystem::perms::all);
  constexpr uid_t kNobody = 65534;
  const bool is_root = geteuid() == 0;  // who may look into everything
  if (is_root) {
    ASSERT_EQ(seteuid(kNobody), 0);
  }
  const std::vector<CheckpointEntry> entries = list_checkpoints(folder());
  const auto newest = newest_complete(folder());
  if (is_root) {
    ASSERT_EQ(seteuid(0), 0);
  }
  for (const char* name : {"lost+found", "checkpoint_2"}) {
    std::filesystem::permissions(folder() / name, std::filesystem::perms::all);
  }
  ASSERT_THAT(entries, SizeIs(2));
  EXPECT_TRUE(entries[0].is_complete());
  EXPECT_EQ(entries[1].name, "checkpoint_2");
  EXPECT_EQ(entries[1].problem, "manifest.json: the folder cannot be opened: Permission denied");
  ASSERT_TRUE(newest);
  EXPECT_EQ(newest->name, "checkpoint_1");
}

TEST_F(CheckpointDirectoryTest, WhoMayNotReadIsToldToLookAtReading) {
  save(folder() / "best", 1);
  const std::filesystem::path manifest = folder() / "best" / "manifest.json";
  std::filesystem::permissions(manifest, std::filesystem::perms::none);
  std::filesystem::permissions(folder(), std::filesystem::perms::all);
  constexpr uid_t kNobody = 65534;
  const bool is_root = geteuid() == 0;  // who may read everything
  if (is_root) {
    ASSERT_EQ(seteuid(kNobody), 0);
  }
  const auto error = checkpoint_error([&] { CheckpointDirectory(folder() / "best"); });
  if (is_root) {
    ASSERT_EQ(seteuid(0), 0);
  }
  EXPECT_EQ(error.message(), "the file cannot be opened: Permission denied");
  EXPECT_EQ(error.where(), manifest.string());
  EXPECT_EQ(error.hint(), "check the permissions of the file and of the folders that contain it");
}

TEST_F(CheckpointDirectoryTest, OneCheckpointIsFoundByItsPath) {
  save(folder() / "best", 1);
  std::filesystem::create_directory(folder() / "other");
  std::filesystem::create_directory(folder() / "checkpoint_3");
  EXPECT_EQ(look_at_checkpoint(folder() / "best/")->manifest->step, 1);
  EXPECT_FALSE(look_at_checkpoint(folder() / "checkpoint_3")->is_complete());
  EXPECT_FALSE(look_at_checkpoint(folder() / "other"));
  EXPECT_FALSE(look_at_checkpoint(folder() / "missing"));
  std::filesystem::rename(folder() / "best", folder() / ".best.old-0123456789abcdef");
  const auto aside = look_at_checkpoint(folder() / "best");
  ASSERT_TRUE(aside);
  EXPECT_EQ(aside->name, "best");
  EXPECT_EQ(aside->directory, folder() / ".best.old-0123456789abcdef");
}

TEST_F(CheckpointDirectoryTest, AMissingOrTornCheckpointIsRefusedByName) {
  const auto missing = checkpoint_error([&] { CheckpointDirectory(folder() / "ckpt"); });
  EXPECT_EQ(missing.message(), "there is no checkpoint");
  EXPECT_EQ(missing.where(), (folder() / "ckpt").string());
  save(folder() / "ckpt", 1);
  std::filesystem::resize_file(folder() / "ckpt" / "model.safetensors", 150);
  const auto torn = checkpoint_error([&] { CheckpointDirectory(folder() / "ckpt"); });
  EXPECT_EQ(torn.message(),
            "the checkpoint is not complete: model.safetensors: it has 150 bytes, the manifest "
            "says 237");
  EXPECT_EQ(torn.where(), (folder() / "ckpt" / "model.safetensors").string());
  std::filesystem::remove(folder() / "ckpt" / "manifest.json");
  EXPECT_EQ(checkpoint_error([&] { CheckpointDirectory(folder() / "ckpt"); }).where(),
            (folder() / "ckpt" / "manifest.json").string());
}

TEST_F(CheckpointDirectoryTest, OnlyFilesOfTheManifestAreGivenOut) {
  save(folder() / "ckpt", 1);
  folder_.write("ckpt/stray.bin", "x");
  const CheckpointDirectory read(folder() / "ckpt");
  EXPECT_EQ(read.file("optimizer.bin"), folder() / "ckpt" / "optimizer.bin");
  EXPECT_EQ(read.find("optimizer.bin")->bytes, 233U);
  EXPECT_EQ(read.find("stray.bin"), nullptr);
  for (const char* name : {"stray.bin", "../ckpt/optimizer.bin", "manifest.json", ""}) {
    EXPECT_THAT(checkpoint_error([&] { (void)read.file(name); }).message(),
                StartsWith("the checkpoint has no file "));
  }
}

TEST_F(CheckpointDirectoryTest, LinksAndDevicesInPlaceOfFilesAreRefused) {
  save(folder() / "ckpt", 1);
  const auto model = folder() / "ckpt" / "model.safetensors";
  const auto outside = folder() / "outside";
  std::filesystem::rename(model, outside);
  std::filesystem::create_symlink(outside, model);
  const auto problem = [&] { return list_checkpoints(folder()).at(0).problem; };
  EXPECT_EQ(problem(), "model.safetensors: the file is a link");
  std::filesystem::remove(model);
  ASSERT_EQ(mkfifo(model.c_str(), 0600), 0);
  EXPECT_EQ(problem(), "model.safetensors: this is not a regular file");
  std::filesystem::remove(model);
  std::filesystem::rename(outside, model);
  EXPECT_EQ(problem(), "");
  std::filesystem::rename(folder() / "ckpt" / "manifest.json", outside);
  std::filesystem::create_symlink(outside, folder() / "ckpt" / "manifest.json");
  EXPECT_EQ(problem(), "manifest.json: the file is a link");
}

}  // namespace
}  // namespace accelerate::files
