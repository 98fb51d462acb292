// A file seen through memory: the kernel reads what is touched, and forgets it when memory is
// short.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace accelerate {

// Maps a regular file, all of it, for as long as the object lives. Costs address space alone: pages
// are read when they are first touched and belong to the page cache. Reading is safe from any
// thread.
//
// The file must not become shorter meanwhile: touching a page beyond its new end raises SIGBUS, as
// with every mapping. Replacing the file by a rename is safe, the mapping keeps the old one.
class MappedFile {
 public:
  enum class Writes {
    kForbidden,  // writing to the bytes is a segmentation fault
    kPrivate,    // writes are seen by this process alone; the file never changes
  };

  // Throws DataError, with `kind` ("the token file") as its subject, if the file is missing,
  // unreadable, empty or not a regular file.
  MappedFile(const std::filesystem::path& path, const std::string& kind,
             Writes writes = Writes::kForbidden);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  // The beginning of the bytes; to be written to only under Writes::kPrivate.
  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  const std::filesystem::path& path() const { return path_; }
  // Whether that descriptor is of the file that is mapped, which its path may not name any more.
  bool is_same_file(int descriptor) const;

  // Tells the kernel that the file is about to be read from its beginning to its end, or that such
  // a reading is over. Advice only.
  void begin_scan() const;
  void end_scan() const;
  // Gives whole pages among these bytes back: they do not count as memory of the process until they
  // are touched again, which reads the file. What was written to them is lost. Advice only.
  void forget(size_t offset, size_t bytes) const;

 private:
  std::filesystem::path path_;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  uint64_t device_ = 0;  // of the file, with its inode
  uint64_t inode_ = 0;
};

}  // namespace accelerate
