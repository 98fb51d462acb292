// A file that a tracker appends to.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/unique_fd.h"

namespace accelerate::tracking {

// Bytes wait in memory until flush(). What could not be written, because a disk is full, is kept
// for the next attempt; beyond kMostWaiting bytes the file is given up.
class OutputFile {
 public:
  static constexpr size_t kMostWaiting = size_t{64} << 20U;

  OutputFile() = default;
  // Makes the folders above it. Throws TrackerError if the file cannot be opened.
  enum class At { kStart, kEnd };
  OutputFile(std::filesystem::path path, At at);

  const std::filesystem::path& path() const { return path_; }
  bool is_open() const { return static_cast<bool>(fd_); }
  // Where the next byte goes.
  size_t size() const { return written_ + waiting_.size(); }

  // Throws TrackerError if too much waits.
  void append(std::string_view bytes);
  // Throws TrackerError if the system does not take them.
  void flush();
  // After somebody has put another file in its place: goes on at the end of that one.
  void reopen();
  void close();

 private:
  std::filesystem::path path_;
  UniqueFd fd_;
  std::string waiting_;
  size_t written_ = 0;
};

// Makes `path` and its parents. Throws TrackerError if that fails.
void make_folders(const std::filesystem::path& path);
// The bytes of a file, nothing if there is none. Throws TrackerError if it cannot be read.
std::string read_file(const std::filesystem::path& path);
// Whether the last line is whole; also if there is none.
bool ends_with_line_feed(const std::filesystem::path& path);
// A file of these bytes, whole or not at all, with its folders.
void write_file(const std::filesystem::path& path, std::string_view bytes);

}  // namespace accelerate::tracking
