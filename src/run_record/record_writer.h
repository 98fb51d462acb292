// Writes one file of a run.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "run_record/record_format.h"

namespace accelerate::run_record {

// Any thread may call it. Records are kept in memory and written together by flush(), which nobody
// should call who must not wait for a disk; only the newest kMostPending bytes that were not
// written yet are promised to be kept. A disk that is full, or a file that cannot be written, loses
// records and is told once by failure(): a run never fails for its record.
class RecordWriter {
 public:
  static constexpr size_t kMostPending = size_t{1} << 20;

  // Makes the folder and the file: the first of this writer in the folder that is free. `begin`
  // without a time gets that of now. Throws ConfigError that names the folder if that cannot be.
  RecordWriter(const std::filesystem::path& folder, Begin begin);
  RecordWriter(const RecordWriter&) = delete;
  RecordWriter& operator=(const RecordWriter&) = delete;
  ~RecordWriter();  // flushes

  // Microseconds since the file began, now and at a time of the steady clock.
  uint64_t now_us() const { return at_us(std::chrono::steady_clock::now()); }
  uint64_t at_us(std::chrono::steady_clock::time_point time) const;

  // Takes the record; false if there is no room, which is counted in a record of the kind kLost.
  bool append(const Record& record);

  // What a user logged, with a time of now. Texts of names are written once.
  bool append_values(int64_t step, std::span<const std::pair<std::string_view, double>> values);

  // The number of a name, in this file.
  uint64_t name_id(std::string_view name);

  // Writes what is pending. Blocks as long as the file system takes.
  void flush();
  // Why nothing is written any more; "" while all is well.
  std::string failure() const;
  const std::filesystem::path& path() const { return path_; }

 private:
  uint64_t name_id_locked(std::string_view name);
  bool append_locked(const Record& record);

  mutable std::mutex mutex_;  // of all below; never held while the file is written
  std::mutex file_mutex_;     // one flush at a time, in order
  std::filesystem::path path_;
  UniqueFd file_;
  std::chrono::steady_clock::time_point began_;
  std::string pending_;
  std::string writing_;
  std::map<std::string, uint64_t, std::less<>> names_;
  uint64_t lost_values_ = 0;
  uint64_t lost_records_ = 0;
  std::string failure_;
};

}  // namespace accelerate::run_record
