#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "accelerate/errors.h"
#include "accelerate/idx.h"

namespace accelerate {
namespace {

using testing::HasSubstr;

class ReadIdx : public testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        std::filesystem::temp_directory_path() / ("accelerate_idx_" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path plain(const std::string& bytes) {
    const auto path = folder_ / "file";
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  std::filesystem::path compressed(const std::string& bytes) {
    const auto path = folder_ / "file.gz";
    gzFile file = gzopen(path.c_str(), "wb");
    EXPECT_EQ(gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size())),
              static_cast<int>(bytes.size()));
    EXPECT_EQ(gzclose(file), Z_OK);
    return path;
  }
  // The message of the DataError that reading `path` ends with; it must name the file.
  std::string refusal_of(const std::filesystem::path& path) {
    try {
      read_idx(path);
    } catch (const DataError& error) {
      EXPECT_EQ(error.where(), path.string());
      return error.message();
    }
    return "no error";
  }

  std::filesystem::path folder_;
};

std::string bytes(std::initializer_list<int> values) {
  std::string text;
  for (const int value : values) text += static_cast<char>(value);
  return text;
}

const std::string kTwoByThree = bytes({0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3, 1, 2, 3, 4, 5, 255});

TEST_F(ReadIdx, ReadsPlainAndCompressedFilesAlike) {
  const at::Tensor expected = at::tensor({1, 2, 3, 4, 5, 255}, at::kByte).view({2, 3});
  EXPECT_TRUE(at::equal(read_idx(plain(kTwoByThree)), expected));
  EXPECT_TRUE(at::equal(read_idx(compressed(kTwoByThree)), expected));
}

TEST_F(ReadIdx, ReadsEveryElementTypeOfTheFormat) {
  const std::string shape = bytes({0, 0, 0, 2});
  const auto read = [&](int code, std::initializer_list<int> body) {
    return read_idx(plain(bytes({0, 0, code, 1}) + shape + bytes(body)));
  };
  EXPECT_TRUE(at::equal(read(0x08, {200, 1}), at::tensor({200, 1}, at::kByte)));
  EXPECT_TRUE(at::equal(read(0x09, {255, 1}), at::tensor({-1, 1}, at::kChar)));
  EXPECT_TRUE(at::equal(read(0x0B, {1, 2, 255, 254}), at::tensor({258, -2}, at::kShort)));
  EXPECT_TRUE(
      at::equal(read(0x0C, {0, 1, 0, 2, 255, 255, 255, 255}), at::tensor({65538, -1}, at::kInt)));
  EXPECT_TRUE(at::equal(read(0x0D, {0x3F, 0xC0, 0, 0, 0xC0, 0, 0, 0}),
                        at::tensor({1.5, -2.0}, at::kFloat)));
  EXPECT_TRUE(at::equal(read(0x0E, {0x3F, 0xF8, 0, 0, 0, 0, 0, 0, 0xC0, 0, 0, 0, 0, 0, 0, 0}),
                        at::tensor({1.5, -2.0}, at::kDouble)));
}

TEST_F(ReadIdx, ReadsBodiesLargerThanItsFirstBuffer) {
  std::string body(3'000'000, '\0');
  for (size_t i = 0; i < body.size(); ++i) body[i] = static_cast<char>(i % 251);
  const at::Tensor read = read_idx(compressed(bytes({0, 0, 8, 1, 0x00, 0x2D, 0xC6, 0xC0}) + body));
  EXPECT_TRUE(at::equal(read, at::arange(3'000'000).remainder(251).to(at::kByte)));
}

TEST_F(ReadIdx, AnExtentOfZeroGivesAnEmptyTensorOfThatShape) {
  const at::Tensor read = read_idx(plain(bytes({0, 0, 8, 2, 0, 0, 0, 0, 0, 0, 0, 7})));
  EXPECT_EQ(read.sizes(), (at::IntArrayRef{0, 7}));
}

TEST_F(ReadIdx, RefusesAMissingFile) {
  EXPECT_EQ(refusal_of(folder_ / "none"),
            "the IDX file cannot be opened: No such file or directory");
}

TEST_F(ReadIdx, RefusesAFolder) { EXPECT_THAT(refusal_of(folder_), HasSubstr("Is a directory")); }

TEST_F(ReadIdx, RefusesABadMagicNumber) {
  const std::string expected =
      "not an IDX file: its first bytes are not a magic number of the format";
  EXPECT_EQ(refusal_of(plain("PNG is not IDX")), expected);
  EXPECT_EQ(refusal_of(plain(bytes({0, 0, 0x0A, 1, 0, 0, 0, 1, 9}))), expected);
  EXPECT_EQ(refusal_of(plain(bytes({1, 0, 0x08, 1, 0, 0, 0, 1, 9}))), expected);
  EXPECT_EQ(refusal_of(plain(bytes({0, 1, 0x08, 1, 0, 0, 0, 1, 9}))), expected);
}

TEST_F(ReadIdx, RefusesEveryTruncation) {
  for (size_t length = 0; length < kTwoByThree.size(); ++length) {
    EXPECT_THAT(refusal_of(plain(kTwoByThree.substr(0, length))), HasSubstr("truncated"))
        << length << " bytes";
  }
  EXPECT_EQ(refusal_of(plain(kTwoByThree.substr(0, 16))),
            "the IDX file is truncated: its header promises 6 bytes of data, it holds 4");
}

TEST_F(ReadIdx, RefusesATruncatedCompressedFile) {
  const auto path = compressed(kTwoByThree);
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 6);
  EXPECT_THAT(refusal_of(path), HasSubstr("damaged"));
}

TEST_F(ReadIdx, RefusesADamagedCompressedFile) {
  const auto path = compressed(kTwoByThree);
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(std::filesystem::file_size(path)) - 8);  // the checksum
  file << "xxxx";
  file.close();
  EXPECT_THAT(refusal_of(path), HasSubstr("damaged"));
}

TEST_F(ReadIdx, RefusesDataAfterThePromisedEnd) {
  EXPECT_EQ(refusal_of(plain(kTwoByThree + "x")),
            "the IDX file goes on after the 6 bytes of data that its header promises");
}

TEST_F(ReadIdx, AHeaderThatClaimsMoreThanTheFileHoldsCostsNoMemory) {
  rusage before{};
  getrusage(RUSAGE_SELF, &before);
  EXPECT_EQ(refusal_of(plain(bytes({0, 0, 8, 1, 255, 255, 255, 255, 1, 2}))),
            "the IDX file is truncated: its header promises 4294967295 bytes of data, it holds 2");
  rusage after{};
  getrusage(RUSAGE_SELF, &after);
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 64 * 1024) << "kilobytes";
}

TEST_F(ReadIdx, RefusesSizesWhoseProductOverflows) {
  std::string header = bytes({0, 0, 0x0E, 4});
  for (int i = 0; i < 16; ++i) header += '\xFF';
  const std::string expected = "the IDX file claims more data than any file can hold";
  EXPECT_EQ(refusal_of(plain(header)), expected);
  EXPECT_EQ(refusal_of(plain(bytes({0, 0, 0x0E, 5, 0, 0, 0, 0}) + header.substr(4))), expected);
}

}  // namespace
}  // namespace accelerate
