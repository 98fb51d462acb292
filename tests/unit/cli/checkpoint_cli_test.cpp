// accelerate checkpoint list|verify|show, as a user runs it.
#include <gmock/gmock.h>
#include <sys/wait.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "cli/reports/checkpoint_report.h"
#include "cli/reports/text_table.h"
#include "unit/files/checkpoint_directory_files.h"

namespace accelerate::files {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Result {
  int exit_code = -1;
  std::string out;  // of both streams
};

class CheckpointCli : public CheckpointFolder {
 protected:
  // `directory` is below the folder of the test; its path is taken out of the output.
  Result run(const std::string& words, const std::string& directory = "") const {
    const std::string root = folder().string();
    const std::string path = directory.empty() ? root : root + "/" + directory;
    const std::string command =
        std::string(ACCELERATE_PROGRAM) + " checkpoint " + words + " '" + path + "' 2>&1";
    FILE* pipe = popen(command.c_str(), "r");
    Result result;
    for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) {
      result.out.push_back(static_cast<char>(c));
    }
    result.exit_code = WEXITSTATUS(pclose(pipe));
    for (size_t at = result.out.find(root); at != std::string::npos; at = result.out.find(root)) {
      result.out.replace(at, root.size(), "ROOT");
    }
    return result;
  }

  // A checkpoint of two files, ten days old.
  void save_old(const std::string& name, int64_t step) const {
    CheckpointWriter writer(folder() / name);
    Manifest manifest = write_files(writer, step);
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    manifest.created = std::chrono::duration_cast<std::chrono::seconds>(now).count() - 864'100;
    PartRecord& weight = manifest.files[0].parts[0];
    weight.dtype = "F32";
    weight.shape = {2, 13};
    weight.shard = ShardRecord{{4, 13}, {2, 0}};
    writer.commit(std::move(manifest));
  }
};

TEST_F(CheckpointCli, ListPrintsALineACheckpoint) {
  save_old("checkpoint_9", 9);
  save_old("checkpoint_10", 1000);
  const Result result = run("list");
  EXPECT_EQ(result.out,
            "CHECKPOINT     STEP  RANKS   SIZE   AGE  STATE\n"
            "checkpoint_9      9      2  470 B  10 d  complete\n"
            "checkpoint_10  1000      2  470 B  10 d  complete\n");
  EXPECT_EQ(result.exit_code, 0);
}

TEST_F(CheckpointCli, ListSaysWhatIsIncompleteAndWhy) {
  save_old("checkpoint_1", 1);
  std::filesystem::create_directory(folder() / "checkpoint_2");
  std::filesystem::remove(folder() / "checkpoint_1" / "optimizer.bin");
  const Result result = run("list");
  EXPECT_EQ(result.out,
            "CHECKPOINT    STEP  RANKS   SIZE   AGE  STATE\n"
            "checkpoint_1     1      2  470 B  10 d  INCOMPLETE: optimizer.bin: the file cannot be "
            "opened: No such file or directory\n"
            "checkpoint_2     -      -      -     -  INCOMPLETE: manifest.json: the file cannot be "
            "opened: No such file or directory\n");
  EXPECT_EQ(result.exit_code, 1);
}

TEST_F(CheckpointCli, TheFolderOfAProjectAndOneCheckpointWorkToo) {
  save_old("checkpoints/checkpoint_1", 1);
  save_old("checkpoints/checkpoint_2", 2);
  EXPECT_THAT(run("list").out, HasSubstr("\ncheckpoint_1 "));
  const Result one = run("list", "checkpoints/checkpoint_2/");
  EXPECT_THAT(one.out, HasSubstr("\ncheckpoint_2 "));
  EXPECT_EQ(one.out.find("checkpoint_1"), std::string::npos);
}

TEST_F(CheckpointCli, VerifyReadsAllBytesAndNamesTheTensor) {
  save_old("checkpoint_1", 1);
  save_old("checkpoint_2", 2);
  EXPECT_EQ(run("verify").exit_code, 0);
  EXPECT_EQ(run("verify").out,
            "checkpoint_1: good, 2 files, 470 B\n"
            "checkpoint_2: good, 2 files, 470 B\n");
  std::string text = content_of(folder() / "checkpoint_2/model.safetensors");
  text.back() = 'X';
  folder_.write("checkpoint_2/model.safetensors", text);
  EXPECT_EQ(run("list").exit_code, 0);  // the sizes are right
  const Result result = run("verify");
  EXPECT_EQ(result.out,
            "checkpoint_1: good, 2 files, 470 B\n"
            "checkpoint_2: DAMAGED\n"
            "  model.safetensors, tensor bias: its bytes do not match the checksum\n");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(run("verify", "checkpoint_1").exit_code, 0);
  EXPECT_EQ(run("verify", "checkpoint_2").exit_code, 1);
}

TEST_F(CheckpointCli, ShowPrintsFilesAndTensors) {
  save_old("ckpt", 400);
  const Result result = run("show", "ckpt");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, StartsWith("checkpoint  ROOT/ckpt\n"
                                     "state       complete\n"
                                     "step        400\n"
                                     "world size  2\n"
                                     "size        470 B\n"
                                     "age         10 d\n"
                                     "library     0.1.0\n"
                                     "\n"
                                     "FILE                SIZE  TENSORS  XXH3\n"
                                     "model.safetensors  237 B        2  "));
  EXPECT_THAT(result.out, HasSubstr("\n"
                                    "model.safetensors\n"
                                    "  TENSOR  DTYPE  SHAPE    SIZE  PART OF\n"
                                    "  weight  F32    [2,13]  106 B  [4,13] from [2,0]\n"
                                    "  bias    -      -       104 B\n"
                                    "\n"
                                    "optimizer.bin\n"
                                    "  TENSOR  DTYPE  SHAPE   SIZE\n"
                                    "  weight  -      -      106 B\n"
                                    "  bias    -      -      104 B\n"));
}

TEST_F(CheckpointCli, JsonHasTheSameFacts) {
  save_old("checkpoint_1", 7);
  const json list = json::parse(run("list --json").out);
  ASSERT_EQ(list.size(), 1U);
  EXPECT_EQ(list[0]["name"], "checkpoint_1");
  EXPECT_EQ(list[0]["step"], 7);
  EXPECT_EQ(list[0]["world_size"], 2);
  EXPECT_EQ(list[0]["bytes"], 470);
  EXPECT_EQ(list[0]["complete"], true);
  const json show = json::parse(run("show --json").out);
  EXPECT_EQ(show[0]["state"], json({{"step", 7}}));
  EXPECT_EQ(show[0]["files"][0]["parts"][0]["shard"]["start"], json({2, 0}));
  std::filesystem::remove(folder() / "checkpoint_1" / "optimizer.bin");
  const json verify = json::parse(run("verify --json").out);
  EXPECT_EQ(verify[0]["complete"], false);
  EXPECT_EQ(verify[0]["findings"][0]["file"], "optimizer.bin");
}

TEST_F(CheckpointCli, NoCheckpointIsAnErrorAndABadCommandLineAnother) {
  const Result none = run("list");
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_EQ(none.out,
            "error: there is no checkpoint\n"
            "  at   ROOT\n"
            "  try  name a checkpoint, or the folder that checkpoints are in\n");
  EXPECT_EQ(run("verify", "missing").exit_code, 2);
  EXPECT_EQ(run("").exit_code, 2);
  EXPECT_EQ(run("list --jason").exit_code, 2);
  EXPECT_EQ(run("list a").exit_code, 2);
}

TEST_F(CheckpointCli, NamesCannotSteerTheTerminal) {
  save_old("ckpt", 1);
  {
    CheckpointWriter writer(folder() / "ckpt");
    DurableFile file = writer.create("a.bin");
    file.begin_part("x\x1b[2Jy");
    writer.commit({.files = {file.close()}});
  }
  EXPECT_THAT(run("show", "ckpt").out, HasSubstr("  x?[2Jy "));
}

TEST_F(CheckpointCli, PathsCannotSteerTheTerminal) {
  save_old("a\x1b[2Jb/ckpt", 1);
  EXPECT_THAT(run("show", "a\x1b[2Jb/ckpt").out, StartsWith("checkpoint  ROOT/a?[2Jb/ckpt\n"));
}

// Whoever looks takes no lock: the job goes on saving meanwhile.
TEST_F(CheckpointCli, VerifySaysWhatItSawAndNotWhatWasListed) {
  for (const int64_t step : {1, 2, 3}) save_old("checkpoint_" + std::to_string(step), step);
  const std::string manifest = content_of(folder() / "checkpoint_2/manifest.json");
  folder_.write("checkpoint_2/manifest.json", "{}");
  const std::vector<CheckpointEntry> listed = list_checkpoints(folder());
  ASSERT_EQ(listed.size(), 3U);
  EXPECT_FALSE(listed[1].manifest);
  folder_.write("checkpoint_2/manifest.json", manifest);
  std::filesystem::remove_all(folder() / "checkpoint_1");
  const cli::CheckpointReport report = cli::verify_report(listed, /*json=*/false);
  EXPECT_EQ(report.text,
            "checkpoint_1: deleted meanwhile\n"
            "checkpoint_2: good, 2 files, 470 B\n"
            "checkpoint_3: good, 2 files, 470 B\n");
  EXPECT_TRUE(report.all_complete);
  const json values = json::parse(cli::verify_report(listed, /*json=*/true).text);
  EXPECT_EQ(values[0]["deleted"], true);
  EXPECT_EQ(values[1]["complete"], true);
}

TEST(TextTableTest, SizesAndAgesAreRounded) {
  using cli::age_text;
  using cli::size_text;
  EXPECT_EQ(size_text(0), "0 B");
  EXPECT_EQ(size_text(1023), "1023 B");
  EXPECT_EQ(size_text(1024), "1.0 KiB");
  EXPECT_EQ(size_text(1'048'524), "1023.9 KiB");
  EXPECT_EQ(size_text(1'048'575), "1.0 MiB");
  EXPECT_EQ(size_text(1'234'567'890), "1.1 GiB");
  EXPECT_EQ(size_text(UINT64_MAX), "16.0 EiB");
  EXPECT_EQ(age_text(-5), "now");
  EXPECT_EQ(age_text(59), "59 s");
  EXPECT_EQ(age_text(60), "1 min");
  EXPECT_EQ(age_text(7199), "1 h");
  EXPECT_EQ(age_text(172'800), "2 d");
}

TEST(TextTableTest, ColumnsAreAlignedByCharacter) {
  TextTable table({Align::kLeft, Align::kRight, Align::kLeft}, 1);
  table.add({"A", "B", "C"});
  table.add({"\xc3\xa4\xc3\xb6", "10", ""});
  EXPECT_EQ(table.text(), " A    B  C\n \xc3\xa4\xc3\xb6  10\n");
}

}  // namespace
}  // namespace accelerate::files
