// Damage of every kind is found, and it is said where.
#include <gmock/gmock.h>

#include <random>

#include "files/manifest/verification.h"
#include "unit/files/checkpoint_directory_files.h"

namespace accelerate::files {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class CheckpointDamageTest : public CheckpointFolder {
 protected:
  CheckpointDamageTest() { save(folder() / "ckpt", 1); }

  std::filesystem::path file(const std::string& name) const { return folder() / "ckpt" / name; }

  std::vector<std::string> findings() const {
    std::vector<std::string> texts;
    for (const Finding& finding : verify(folder() / "ckpt")) texts.push_back(finding.text());
    return texts;
  }

  void flip(const std::string& name, size_t bit) const {
    std::fstream stream(file(name), std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(static_cast<std::streamoff>(bit / 8));
    const int byte = stream.get() ^ 1 << bit % 8;
    stream.seekp(static_cast<std::streamoff>(bit / 8));
    stream.put(static_cast<char>(byte));
  }
};

TEST_F(CheckpointDamageTest, AnUndamagedCheckpointHasNoFindings) {
  EXPECT_THAT(findings(), IsEmpty());
  folder_.write("ckpt/notes.txt", "not part of it");
  EXPECT_THAT(findings(), IsEmpty());
}

TEST_F(CheckpointDamageTest, AFindingNamesTheFileAndTheTensor) {
  flip("model.safetensors", 8 * 3);  // header
  EXPECT_THAT(findings(), ElementsAre("model.safetensors: its bytes do not match the checksum"));
  flip("model.safetensors", 8 * 3);
  flip("model.safetensors", 8 * (27 + 105));  // the last byte of weight
  flip("optimizer.bin", 8 * 232);             // the last byte of bias
  EXPECT_THAT(findings(),
              ElementsAre("model.safetensors, tensor weight: its bytes do not match the checksum",
                          "optimizer.bin, tensor bias: its bytes do not match the checksum"));
}

TEST_F(CheckpointDamageTest, TenThousandRandomBitFlipsAreAllFound) {
  std::vector<std::string> all = names("ckpt");
  ASSERT_THAT(all, ElementsAre("manifest.json", "model.safetensors", "optimizer.bin"));
  std::mt19937 random(20260101);
  size_t found = 0;
  for (int i = 0; i < 10'000; ++i) {
    const std::string& name = all[random() % all.size()];
    const size_t bit = random() % (8 * std::filesystem::file_size(file(name)));
    flip(name, bit);
    const std::vector<Finding> findings = verify(folder() / "ckpt");
    ASSERT_EQ(findings.size(), 1U) << name << ", bit " << bit;
    ASSERT_EQ(findings[0].file, name);
    ++found;
    flip(name, bit);
  }
  EXPECT_EQ(found, 10'000U);
  EXPECT_THAT(findings(), IsEmpty());
}

TEST_F(CheckpointDamageTest, EveryTruncationOfEveryFileIsFound) {
  for (const std::string& name : names("ckpt")) {
    const std::string whole = content_of(file(name));
    for (size_t size = 0; size < whole.size(); ++size) {
      folder_.write("ckpt/" + name, whole.substr(0, size));
      ASSERT_EQ(findings().size(), 1U) << name << " with " << size << " bytes";
      ASSERT_FALSE(list_checkpoints(folder()).at(0).is_complete());
    }
    folder_.write("ckpt/" + name, whole + "x");
    ASSERT_EQ(findings().size(), 1U) << name << " with a byte more";
    folder_.write("ckpt/" + name, whole);
  }
  EXPECT_THAT(findings(), IsEmpty());
}

TEST_F(CheckpointDamageTest, ATruncationNamesTheFileAndItsSizes) {
  std::filesystem::resize_file(file("model.safetensors"), 100);
  EXPECT_THAT(findings(),
              ElementsAre("model.safetensors: it has 100 bytes, the manifest says 237"));
}

TEST_F(CheckpointDamageTest, SeveralFindingsAreAllGiven) {
  std::filesystem::remove(file("model.safetensors"));
  std::filesystem::resize_file(file("optimizer.bin"), 1);
  EXPECT_THAT(findings(),
              ElementsAre("model.safetensors: the file cannot be opened: No such file or directory",
                          "optimizer.bin: it has 1 byte, the manifest says 233"));
}

TEST_F(CheckpointDamageTest, WithoutChecksumsOnlyTheSizesCount) {
  flip("optimizer.bin", 0);
  EXPECT_THAT(verify(folder() / "ckpt", {.data_checksums = false}), IsEmpty());
}

TEST_F(CheckpointDamageTest, SwappedFilesOfEqualSizeAreFound) {
  save(folder() / "other", 2);
  std::filesystem::rename(folder() / "other" / "model.safetensors", file("model.safetensors"));
  EXPECT_THAT(findings(),
              ElementsAre("model.safetensors, tensor weight: its bytes do not match the checksum",
                          "model.safetensors, tensor bias: its bytes do not match the checksum"));
}

}  // namespace
}  // namespace accelerate::files
