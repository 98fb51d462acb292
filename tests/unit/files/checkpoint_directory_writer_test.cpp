// A checkpoint is there completely, or not at all.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include "files/manifest/checkpoint_names.h"
#include "unit/files/checkpoint_directory_files.h"

namespace accelerate::files {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

class CheckpointWriterTest : public CheckpointFolder {};

TEST_F(CheckpointWriterTest, NothingIsVisibleBeforeTheCommitAndAllOfItAfter) {
  CheckpointWriter writer(folder() / "a" / "b" / "ckpt");
  const Manifest manifest = write_files(writer, 7);
  EXPECT_FALSE(std::filesystem::exists(folder() / "a/b/ckpt"));
  EXPECT_THAT(list_checkpoints(folder() / "a/b"), IsEmpty());
  const CommitReport report = writer.commit(manifest);
  EXPECT_EQ(report.directory, std::filesystem::canonical(folder()) / "a/b/ckpt");
  EXPECT_THAT(report.rotated, IsEmpty());
  EXPECT_THAT(report.left_over, IsEmpty());
  EXPECT_THAT(names("a/b/ckpt"),
              ElementsAre("manifest.json", "model.safetensors", "optimizer.bin"));
  EXPECT_THAT(verify(folder() / "a/b/ckpt"), IsEmpty());

  const CheckpointDirectory read(folder() / "a/b/ckpt");
  EXPECT_EQ(read.manifest().step, 7);
  EXPECT_EQ(read.manifest().files, manifest.files);
  EXPECT_GT(read.manifest().created, 1'700'000'000);
}

TEST_F(CheckpointWriterTest, WithoutACommitNothingStays) {
  save(folder() / "ckpt", 1);
  {
    CheckpointWriter writer(folder() / "ckpt");
    write_files(writer, 2);
    EXPECT_THAT(names(), ElementsAre(StartsWith(".ckpt.lock"), StartsWith(".ckpt.tmp-"), "ckpt"));
  }
  EXPECT_THAT(names(), ElementsAre("ckpt"));
  EXPECT_EQ(CheckpointDirectory(folder() / "ckpt").manifest().step, 1);
}

TEST_F(CheckpointWriterTest, ASecondSaveOfThatNameReplacesTheFirst) {
  save(folder() / "ckpt", 1);
  {
    CheckpointWriter writer(folder() / "ckpt/");
    DurableFile file = writer.create("other.bin");
    writer.commit({.step = 2, .files = {file.close()}});
  }
  EXPECT_THAT(names(), ElementsAre("ckpt"));
  EXPECT_THAT(names("ckpt"), ElementsAre("manifest.json", "other.bin"));
  EXPECT_EQ(CheckpointDirectory(folder() / "ckpt").manifest().step, 2);
}

TEST_F(CheckpointWriterTest, AnEmptyFolderOfThatNameIsReplacedToo) {
  std::filesystem::create_directory(folder() / "ckpt");
  save(folder() / "ckpt", 1);
  EXPECT_EQ(CheckpointDirectory(folder() / "ckpt").manifest().step, 1);
}

TEST_F(CheckpointWriterTest, AFolderWithSomethingElseInItIsNeverReplaced) {
  std::filesystem::create_directory(folder() / "home");
  folder_.write("home/thesis.tex", "ten years");
  const auto foreign = checkpoint_error([&] { CheckpointWriter(folder() / "home"); });
  EXPECT_EQ(
      foreign.message(),
      "the folder holds thesis.tex and no manifest: it is not a checkpoint that may be replaced");
  EXPECT_EQ(foreign.hint(), "save to another folder, or move away what is there");

  save(folder() / "ckpt", 1);
  folder_.write("ckpt/notes.txt", "mine");
  EXPECT_EQ(checkpoint_error([&] { CheckpointWriter(folder() / "ckpt"); }).message(),
            "the folder holds notes.txt, which is not part of a checkpoint");
  folder_.write("file", "");
  EXPECT_EQ(checkpoint_error([&] { CheckpointWriter(folder() / "file"); }).message(),
            "what is there is not a checkpoint");
  EXPECT_EQ(content_of(folder() / "home/thesis.tex"), "ten years");
  EXPECT_EQ(content_of(folder() / "ckpt/notes.txt"), "mine");
  EXPECT_THAT(names(), ElementsAre("ckpt", "file", "home"));
}

TEST_F(CheckpointWriterTest, ADamagedManifestIsInNoSavesWay) {
  save(folder() / "latest", 1);
  const std::string text = content_of(folder() / "latest/manifest.json");
  folder_.write("latest/manifest.json", text.substr(0, text.size() / 2));
  save(folder() / "latest", 2);
  EXPECT_EQ(CheckpointDirectory(folder() / "latest").manifest().step, 2);
  EXPECT_THAT(names(), ElementsAre("latest"));
}

TEST_F(CheckpointWriterTest, WhatADamagedManifestMayHaveListedIsNotDeletedOnAGuess) {
  save(folder() / "latest", 1);
  folder_.write("latest/manifest.json", "{}");
  folder_.write("latest/notes.txt", "by a hook, or by a person");
  const CheckpointError error = checkpoint_error([&] { save(folder() / "latest", 2); });
  EXPECT_EQ(error.message(),
            "the folder holds notes.txt, which is not part of a checkpoint (its manifest cannot be "
            "used: the manifest is truncated, or was not written by Accelerate)");
  EXPECT_EQ(error.hint(), "save to another folder, or move away what is there");
  EXPECT_EQ(content_of(folder() / "latest/notes.txt"), "by a hook, or by a person");
}

TEST_F(CheckpointWriterTest, AFileThatAppearsInTheOldOneDuringTheSaveStopsTheCommit) {
  save(folder() / "ckpt", 1);
  {
    CheckpointWriter writer(folder() / "ckpt");
    const Manifest manifest = write_files(writer, 2);
    folder_.write("ckpt/notes.txt", "mine");
    EXPECT_EQ(checkpoint_error([&] { writer.commit(manifest); }).message(),
              "the folder holds notes.txt, which is not part of a checkpoint");
  }
  EXPECT_EQ(content_of(folder() / "ckpt/notes.txt"), "mine");
  EXPECT_EQ(CheckpointDirectory(folder() / "ckpt").manifest().step, 1);
  EXPECT_THAT(names(), ElementsAre("ckpt"));
}

TEST_F(CheckpointWriterTest, ALinkToADirectoryIsFollowed) {
  std::filesystem::create_directories(folder() / "big" / "ckpt");
  std::filesystem::create_directory_symlink(folder() / "big" / "ckpt", folder() / "ckpt");
  save(folder() / "ckpt", 1);
  EXPECT_TRUE(std::filesystem::is_symlink(folder() / "ckpt"));
  EXPECT_EQ(CheckpointDirectory(folder() / "big/ckpt").manifest().step, 1);
}

TEST_F(CheckpointWriterTest, FilesThatNobodyGaveARecordOfStopTheCommit) {
  CheckpointWriter writer(folder() / "ckpt");
  Manifest manifest = write_files(writer, 1);
  manifest.files.pop_back();
  EXPECT_EQ(checkpoint_error([&] { writer.commit(manifest); }).message(),
            "no rank has recorded optimizer.bin");
}

TEST_F(CheckpointWriterTest, RecordsOfFilesThatAreNotThereStopTheCommit) {
  CheckpointWriter writer(folder() / "ckpt");
  Manifest manifest = write_files(writer, 1);
  manifest.files.push_back({.name = "rank1.bin", .bytes = 4});
  EXPECT_EQ(
      checkpoint_error([&] { writer.commit(manifest); }).message(),
      "a rank has not written what it recorded: rank1.bin: the file cannot be opened: No such "
      "file or directory");
  manifest.files.pop_back();
  manifest.files[0].bytes += 1;
  EXPECT_THAT(checkpoint_error([&] { writer.commit(manifest); }).message(),
              HasSubstr("model.safetensors: it has 237 bytes, the manifest says 238"));
}

TEST_F(CheckpointWriterTest, OtherRanksWriteIntoTheSameDirectory) {
  CheckpointWriter writer(folder() / "ckpt");
  Manifest manifest = write_files(writer, 1);
  DurableFile other(writer.directory(), "rank1.bin");
  other.write(bytes_of("from rank 1"));
  const FileRecord record = other.close();
  for (const FileRecord& sent : parse_records(records_text(std::span(&record, 1)), "rank 1")) {
    manifest.files.push_back(sent);
  }
  writer.commit(manifest);
  EXPECT_EQ(content_of(CheckpointDirectory(folder() / "ckpt").file("rank1.bin")), "from rank 1");
}

TEST_F(CheckpointWriterTest, ASecondCommitIsRefused) {
  CheckpointWriter writer(folder() / "ckpt");
  writer.commit(write_files(writer, 1));
  EXPECT_THROW(writer.commit({}), UsageError);
}

TEST_F(CheckpointWriterTest, ASecondSaveMeanwhileIsRefusedAndNamesTheFirst) {
  const CheckpointWriter writer(folder() / "checkpoint_1");
  const auto same = checkpoint_error([&] { CheckpointWriter(folder() / "checkpoint_1"); });
  EXPECT_THAT(same.message(), StartsWith("another save is under way: process " +
                                         std::to_string(getpid()) + " on "));
  EXPECT_THAT(checkpoint_error([&] { CheckpointWriter(folder() / "checkpoint_2"); }).message(),
              StartsWith("another save is under way"));
  // Another job, which has a folder of its own beside this one.
  save(folder() / "other", 1);
}

TEST_F(CheckpointWriterTest, ALockFileOfADeadProcessIsInNobodysWay) {
  const pid_t child = fork();
  if (child == 0) {
    new CheckpointWriter(folder() / "ckpt");  // never destroyed: the process dies with it
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_THAT(names(), ElementsAre(".ckpt.lock", StartsWith(".ckpt.tmp-")));
  save(folder() / "ckpt", 1);
  EXPECT_THAT(names(), ElementsAre("ckpt"));
}

TEST_F(CheckpointWriterTest, LeftoversOfTheSameSeriesAloneAreRemoved) {
  std::filesystem::create_directories(folder() / ".checkpoint_3.tmp-0123456789abcdef" / "deep");
  std::filesystem::create_directories(folder() / ".checkpoint_4.old-0123456789abcdef");
  std::filesystem::create_directories(folder() / ".other.tmp-0123456789abcdef");
  std::filesystem::create_directories(folder() / ".checkpoint_3.tmp-0123456789abcde");
  save(folder() / "checkpoint_4", 4);
  EXPECT_THAT(names(), ElementsAre(".checkpoint_3.tmp-0123456789abcde",
                                   ".other.tmp-0123456789abcdef", "checkpoint_4"));
}

TEST_F(CheckpointWriterTest, ACheckpointThatWasSetAsideIsReadableAndComesBack) {
  save(folder() / "checkpoint_1", 1);
  const auto aside = folder() / make_hidden_name(HiddenKind::kSetAside, "checkpoint_1");
  std::filesystem::rename(folder() / "checkpoint_1", aside);
  EXPECT_EQ(CheckpointDirectory(folder() / "checkpoint_1").path(), aside);
  EXPECT_EQ(newest_complete(folder())->name, "checkpoint_1");
  EXPECT_THAT(verify(folder() / "checkpoint_1"), IsEmpty());
  save(folder() / "checkpoint_2", 2);
  EXPECT_THAT(names(), ElementsAre("checkpoint_1", "checkpoint_2"));
  EXPECT_EQ(CheckpointDirectory(folder() / "checkpoint_1").manifest().step, 1);
}

TEST_F(CheckpointWriterTest, RotationKeepsTheNewestByNumber) {
  for (const int64_t step : {8, 9, 10, 11}) {
    save(folder() / numbered_name(step), step);
  }
  save(folder() / "best", 1);
  const CommitReport report = save(folder() / "checkpoint_12", 12, {.total_limit = 2});
  EXPECT_THAT(report.rotated, ElementsAre("checkpoint_8", "checkpoint_9", "checkpoint_10"));
  EXPECT_THAT(names(), ElementsAre("best", "checkpoint_11", "checkpoint_12"));
}

TEST_F(CheckpointWriterTest, RotationNeverDeletesTheNewCheckpoint) {
  save(folder() / "checkpoint_5", 5);
  save(folder() / "checkpoint_6", 6);
  EXPECT_THAT(save(folder() / "checkpoint_0", 0, {.total_limit = 1}).rotated,
              ElementsAre("checkpoint_5", "checkpoint_6"));
  EXPECT_THAT(names(), ElementsAre("checkpoint_0"));
}

TEST_F(CheckpointWriterTest, RotationNeitherCountsNorTouchesWhatIsIncomplete) {
  save(folder() / "checkpoint_1", 1);
  save(folder() / "checkpoint_2", 2);
  std::filesystem::remove(folder() / "checkpoint_2" / "optimizer.bin");
  std::filesystem::create_directory(folder() / "checkpoint_07");
  save(folder() / "checkpoint_3", 3, {.total_limit = 2});
  EXPECT_THAT(names(),
              ElementsAre("checkpoint_07", "checkpoint_1", "checkpoint_2", "checkpoint_3"));
}

TEST_F(CheckpointWriterTest, ALimitBelowOneIsRefused) {
  EXPECT_THROW(CheckpointWriter(folder() / "checkpoint_1", {.total_limit = 0}), UsageError);
}

TEST(CheckpointNamesTest, ASeriesIsANameAndANumber) {
  EXPECT_EQ(series_name("checkpoint_12"), (SeriesName{"checkpoint", 12}));
  EXPECT_EQ(series_name("my_run_0"), (SeriesName{"my_run", 0}));
  for (const char* name : {"checkpoint", "checkpoint_", "_1", "checkpoint_01", "checkpoint_-1",
                           "checkpoint_1a", "checkpoint_9223372036854775808", "checkpoint_+1"}) {
    EXPECT_FALSE(series_name(name)) << name;
  }
}

TEST(CheckpointNamesTest, FilesOfAStateAreKnownByTheirNames) {
  for (const char* name :
       {"manifest.json", "model.safetensors", "model_1.safetensors", "pytorch_model.bin",
        "optimizer_12.bin", "scheduler.bin", "sampler.bin", "scaler.pt", "custom_checkpoint_0.pkl",
        "random_states_0.pkl", "rank_state_3.bin", "optimizer_pieces_1.safetensors",
        "model_pieces_1.safetensors"}) {
    EXPECT_TRUE(is_state_file(name)) << name;
  }
  for (const char* name : {"model.bin", "model_01.safetensors", "my_model.safetensors",
                           "optimizer.bin.bak", "notes.txt", "manifest.json~", ".safetensors"}) {
    EXPECT_FALSE(is_state_file(name)) << name;
  }
}

TEST(CheckpointNamesTest, PiecesOfModelsAreNamedByModelBoxAndTensor) {
  EXPECT_EQ(model_pieces_file(3), "model_pieces_3.safetensors");
  EXPECT_TRUE(is_model_pieces_file("model_pieces_12.safetensors"));
  for (const char* other : {"model_pieces.safetensors", "model_pieces_01.safetensors",
                            "model_pieces_1.bin", "model_1.safetensors"}) {
    EXPECT_FALSE(is_model_pieces_file(other)) << other;
  }
  EXPECT_EQ(to_string({.model = 1, .box = 2, .tensor = "0.weight"}), "1.2.0.weight");
  const auto piece = model_piece_name("1.2.0.weight/1");
  ASSERT_TRUE(piece);
  EXPECT_EQ(piece->model, 1);
  EXPECT_EQ(piece->box, 2);
  EXPECT_EQ(piece->tensor, "0.weight/1");
  for (const char* other : {"weight", "1.weight", "a.0.weight", "0.-1.weight", "1.2", ""}) {
    EXPECT_FALSE(model_piece_name(other)) << other;
  }
}

TEST(CheckpointNamesTest, HiddenNamesComeBack) {
  const std::string name = make_hidden_name(HiddenKind::kTemporary, "checkpoint_1");
  EXPECT_THAT(name, AllOf(StartsWith(".checkpoint_1.tmp-"), ::testing::SizeIs(34)));
  EXPECT_NE(name, make_hidden_name(HiddenKind::kTemporary, "checkpoint_1"));
  EXPECT_EQ(hidden_name(name)->checkpoint, "checkpoint_1");
  EXPECT_EQ(hidden_name(".a.old-0123456789abcdef")->kind, HiddenKind::kSetAside);
  for (const char* other : {"a.tmp-0123456789abcdef", ".tmp-0123456789abcdef", ".a.tmp-0123",
                            ".a.TMP-0123456789abcdef", ".a.tmp-0123456789abcdeF"}) {
    EXPECT_FALSE(hidden_name(other)) << other;
  }
}

}  // namespace
}  // namespace accelerate::files
