// The system calls that writing and reading a checkpoint need, each checked: a call that fails
// throws a CheckpointError which names the path, the reason and what to do about it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "accelerate/errors.h"

namespace accelerate::files {

// The error of a system call: "`what`: No space left on device", with a hint that fits `reason`, a
// value of errno.
CheckpointError system_error(const std::string& what, const std::filesystem::path& path,
                             int reason);

// A file descriptor with one owner. -1 holds nothing.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor();

  int get() const { return number_; }
  explicit operator bool() const { return number_ >= 0; }
  // Hands the descriptor over; this object then holds nothing.
  int release() { return std::exchange(number_, -1); }

 private:
  int number_ = -1;
};

enum class EntryKind { kMissing, kFile, kDirectory, kOther };  // a link is kOther

// What lies under that path itself: links are not followed.
EntryKind entry_kind(const std::filesystem::path& path);

// Whether the path is a directory, or a link to one.
bool leads_to_directory(const std::filesystem::path& path);

// The names of the entries of a directory, sorted, without "." and "..".
std::vector<std::string> entry_names(const std::filesystem::path& directory);

// A directory as a descriptor, for openat() and fsync(). The last part of the path may be a link.
Descriptor open_directory(const std::filesystem::path& directory);

// Opens `name`, a regular file of that directory, for reading. A link, a pipe or a device is
// refused: nothing outside of the directory is ever read.
struct OpenedFile {
  Descriptor descriptor;
  uint64_t bytes = 0;
};
OpenedFile open_inside(const Descriptor& directory, const std::string& name,
                       const std::filesystem::path& directory_path);

// Creates a new file for writing; one that is there already, or a link, is refused.
Descriptor create_file(const std::filesystem::path& path);

// Writes all of the bytes; goes on after short writes and interruptions.
void write_all(const Descriptor& file, std::span<const std::byte> bytes,
               const std::filesystem::path& path);

// Reads until `bytes` is full or the file ends; returns how many bytes were read.
size_t read_some(const Descriptor& file, std::span<std::byte> bytes,
                 const std::filesystem::path& path);

// Returns when contents and size of the file are on the disk.
void sync_file(const Descriptor& file, const std::filesystem::path& path);

// Closes a file that was written; some file systems report only then that they could not.
void close_file(Descriptor& file, const std::filesystem::path& path);

// Returns when the names in the directory are on the disk.
void sync_directory(const std::filesystem::path& directory);

// Creates a directory that must not be there yet.
void make_directory(const std::filesystem::path& directory);

// Creates the directory and those above it that are missing, each durable in its parent.
void make_directories(const std::filesystem::path& directory);

// Gives `from` the new name `to`. Not durable before the parent is synced.
void rename_entry(const std::filesystem::path& from, const std::filesystem::path& to);

// Exchanges two entries in one atomic step. False if the file system cannot do that.
[[nodiscard]] bool exchange_entries(const std::filesystem::path& a, const std::filesystem::path& b);

// Removes a file, or a directory and all inside it; links are removed, not followed. Goes on after
// an entry that cannot be removed. Returns false and says why in `error` if something is left.
[[nodiscard]] bool remove_tree(const std::filesystem::path& path, std::string& error);

}  // namespace accelerate::files
