// Entries and offsets that do not fit into 32 bits.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "files/pickle/zip_reader.h"
#include "unit/files/torch_archive_bytes.h"

namespace accelerate::files {
namespace {

// A file in memory in which long runs of zeros take no room.
class SparseFile final : public ByteSink {
 public:
  SparseFile() : file_(memfd_create("archive", MFD_CLOEXEC)) {}
  ~SparseFile() override {
    if (mapping_ != nullptr) munmap(mapping_, size_);
    close(file_);
  }
  SparseFile(const SparseFile&) = delete;
  SparseFile& operator=(const SparseFile&) = delete;

  void write(std::span<const std::byte> bytes) override {
    constexpr size_t kLong = 1U << 20U;
    if (bytes.size() < kLong) {
      EXPECT_EQ(pwrite(file_, bytes.data(), bytes.size(), static_cast<off_t>(size_)),
                static_cast<ssize_t>(bytes.size()));
    }
    size_ += bytes.size();
  }

  std::span<const std::byte> map() {
    mapping_ = mmap(nullptr, size_, PROT_READ, MAP_SHARED, file_, 0);
    return {static_cast<const std::byte*>(mapping_), size_};
  }

 private:
  int file_;
  size_t size_ = 0;
  void* mapping_ = nullptr;
};

TEST(LargeZip, EntriesAboveAndBehind4GibibytesAreWrittenAndFound) {
  constexpr uint64_t kSize = (uint64_t{1} << 32U) + 8;
  const std::vector<std::byte> zeros(1U << 26U);
  SparseFile file;
  ZipWriter zip(file);
  zip.add_entry("a/data.pkl", "small");
  zip.begin_entry("a/data/0", kSize);
  for (uint64_t left = kSize; left > 0;) {
    const auto part = std::span(zeros).first(std::min<uint64_t>(left, zeros.size()));
    zip.write(part);
    left -= part.size();
  }
  zip.end_entry();
  zip.add_entry("a/data/1", "behind");
  zip.finish();

  const ZipReader reader(file.map(), "large");
  ASSERT_EQ(reader.entries().size(), 3U);
  const ZipEntry& large = *reader.find("a/data/0");
  EXPECT_EQ(large.size, kSize);
  EXPECT_EQ(large.offset % ZipWriter::kAlignment, 0U);
  const ZipEntry& behind = *reader.find("a/data/1");
  EXPECT_GT(behind.offset, kSize);
  EXPECT_EQ(behind.offset % ZipWriter::kAlignment, 0U);
  EXPECT_NO_THROW(reader.check_crc(behind));
  EXPECT_TRUE(std::ranges::equal(reader.bytes(behind), test::bytes_of("behind")));
}

}  // namespace
}  // namespace accelerate::files
