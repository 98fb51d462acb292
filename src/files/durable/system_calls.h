// The system calls that writing and reading a checkpoint need, each checked: a call that fails
// throws a CheckpointError which names the path, the reason and what to do about it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "accelerate/errors.h"
#include "base/unique_fd.h"

namespace accelerate::files {

// What a system call was for: who may not read is told otherwise than who may not write.
enum class Access { kRead, kWrite };

// The error of a system call: "`what`: No space left on device", with a hint that fits `reason`, a
// value of errno, and `access`.
CheckpointError system_error(const std::string& what, const std::filesystem::path& path, int reason,
                             Access access = Access::kWrite);

enum class EntryKind { kMissing, kFile, kDirectory, kOther };  // a link is kOther

// What lies under that path itself: links are not followed.
EntryKind entry_kind(const std::filesystem::path& path);

// Whether something lies there as far as this process may know: what it may not look at is as good
// as missing.
bool can_be_seen(const std::filesystem::path& path);

// Whether the path is a directory, or a link to one.
bool leads_to_directory(const std::filesystem::path& path);

// The names of the entries of a directory, sorted, without "." and "..".
std::vector<std::string> entry_names(const std::filesystem::path& directory);

// A directory as a descriptor, for openat() and fsync(). The last part of the path may be a link.
UniqueFd open_directory(const std::filesystem::path& directory);

// Opens `name`, a regular file of that directory, for reading. A link, a pipe or a device is
// refused: nothing outside of the directory is ever read.
struct OpenedFile {
  UniqueFd descriptor;
  uint64_t bytes = 0;
};
OpenedFile open_inside(const UniqueFd& directory, const std::string& name,
                       const std::filesystem::path& directory_path);

// Creates a new file for writing; one that is there already, or a link, is refused.
UniqueFd create_file(const std::filesystem::path& path);

// Writes all of the bytes; goes on after short writes and interruptions.
void write_all(const UniqueFd& file, std::span<const std::byte> bytes,
               const std::filesystem::path& path);

// Reads until `bytes` is full or the file ends; returns how many bytes were read.
size_t read_some(const UniqueFd& file, std::span<std::byte> bytes,
                 const std::filesystem::path& path);

// Returns when contents and size of the file are on the disk.
void sync_file(const UniqueFd& file, const std::filesystem::path& path);

// Closes a file that was written; some file systems report only then that they could not.
void close_file(UniqueFd& file, const std::filesystem::path& path);

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
