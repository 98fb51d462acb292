// Damaged archives: an error of the library, or the value as it was; never anything else.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <torch/torch.h>
#include <unistd.h>

#include <random>

#include "accelerate/errors.h"
#include "accelerate/torch_archive.h"
#include "checkpoint/archive/torch_archive_writer.h"
#include "unit/files/torch_archive_bytes.h"

namespace accelerate {
namespace {

TorchValue some_value() {
  const at::Tensor base = torch::arange(12, at::kFloat).view({3, 4});
  return TorchDict{{"weights", base},
                   {"view", base.t()},
                   {"short", torch::arange(3).to(at::kUInt16)},
                   {"options", TorchTuple{{0.9, 0.999}}},
                   {7, TorchValue::List{TorchValue(), true, "text", TorchBytes{"\xff"}}}};
}

std::string archive_of(const TorchValue& value) {
  test::StringSink sink;
  write_torch_archive(sink, value);
  return sink.text;
}

// Thousands of files: they are kept in memory.
class DamagedArchive : public ::testing::Test {
 protected:
  DamagedArchive() : file_(memfd_create("archive", MFD_CLOEXEC)) {}
  ~DamagedArchive() override { close(file_); }

  // Whether the bytes are read as `expected`; false if they are refused.
  bool is_read_as(const TorchValue& expected, const std::string& bytes) {
    EXPECT_EQ(ftruncate(file_, 0), 0);
    EXPECT_EQ(pwrite(file_, bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
    const std::string path = "/proc/self/fd/" + std::to_string(file_);
    try {
      const TorchValue value = load_torch_archive(path);
      EXPECT_TRUE(value == expected) << "damage went unnoticed";
      return true;
    } catch (const CheckpointError& error) {
      EXPECT_EQ(error.where(), path) << error.what();
      return false;
    }
  }

 private:
  int file_;
};

TEST_F(DamagedArchive, CutOffAtAnyByteIsRefused) {
  const TorchValue value = some_value();
  const std::string archive = archive_of(value);
  ASSERT_TRUE(is_read_as(value, archive));
  for (size_t bytes = 0; bytes < archive.size(); ++bytes) {
    EXPECT_FALSE(is_read_as(value, archive.substr(0, bytes))) << bytes << " bytes";
  }
}

TEST_F(DamagedArchive, AnyFlippedBitIsRefusedOrWithoutEffect) {
  const TorchValue value = some_value();
  const std::string archive = archive_of(value);
  int refused = 0;
  for (size_t byte = 0; byte < archive.size(); ++byte) {
    std::string damaged = archive;
    damaged[byte] = static_cast<char>(damaged[byte] ^ (1 << (byte % 8)));
    if (!is_read_as(value, damaged)) ++refused;
  }
  EXPECT_GT(refused, 500);
}

TEST_F(DamagedArchive, SeveralDamagedBytesAreRefusedOrWithoutEffect) {
  const TorchValue value = some_value();
  const std::string archive = archive_of(value);
  std::mt19937 random(20);
  for (int i = 0; i < 2000; ++i) {
    std::string damaged = archive;
    for (int j = 0; j < 4; ++j) damaged[random() % damaged.size()] = static_cast<char>(random());
    is_read_as(value, damaged);
  }
}

}  // namespace
}  // namespace accelerate
