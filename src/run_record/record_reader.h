// Reads one file of a run, also while it grows.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "base/unique_fd.h"
#include "run_record/record_format.h"

namespace accelerate::run_record {

// Takes records out of bytes that come in pieces. Never throws for what they hold: a record of an
// unknown kind, or one that does not decode, is skipped and counted; after a wrong checksum nothing
// can be trusted, and the stream ends as damaged.
class RecordParser {
 public:
  void add(std::string_view bytes);
  // Nothing: the rest of the next record is not there yet, or the stream is damaged.
  std::optional<Record> next();

  bool is_damaged() const { return damaged_; }
  uint64_t position() const { return position_; }  // in bytes, of the next record
  uint64_t received() const { return position_ + bytes_.size() - taken_; }
  uint64_t skipped() const { return skipped_; }

 private:
  std::string bytes_;
  size_t taken_ = 0;  // of bytes_
  uint64_t position_ = 0;
  uint64_t skipped_ = 0;
  bool has_magic_ = false;
  bool damaged_ = false;
};

class RecordReader {
 public:
  // A file that cannot be opened yet is tried again by each call of next().
  explicit RecordReader(std::filesystem::path path) : path_(std::move(path)) {}

  // Nothing: there is no further record now.
  std::optional<Record> next();

  bool is_damaged() const { return parser_.is_damaged(); }
  uint64_t position() const { return parser_.position(); }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  UniqueFd file_;
  RecordParser parser_;
};

}  // namespace accelerate::run_record
