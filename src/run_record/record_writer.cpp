#include "run_record/record_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>

#include "accelerate/errors.h"

namespace accelerate::run_record {
namespace {

namespace fs = std::filesystem;

constexpr int kMostNumbers = 10'000;  // of files of one writer
constexpr size_t kMostNames = 10'000;

[[noreturn]] void refuse_folder(const fs::path& folder, const std::string& reason) {
  throw ConfigError({.what = "cannot record the run: " + reason,
                     .where = folder.string(),
                     .hint = "name a writable folder on a disk with free space, by --run_dir or " +
                             std::string(kFolderVariable)});
}

}  // namespace

RecordWriter::RecordWriter(const fs::path& folder, Begin begin) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) refuse_folder(folder, error.message());
  for (int number = 0; !file_; ++number) {
    path_ = folder / file_name(begin.writer, begin.index, number);
    file_ = UniqueFd(open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644));
    if (file_) break;
    if (errno != EEXIST) refuse_folder(path_, std::strerror(errno));
    if (number == kMostNumbers) refuse_folder(folder, "it holds too many files of one writer");
  }
  began_ = std::chrono::steady_clock::now();
  if (begin.unix_us == 0) {
    begin.unix_us = std::chrono::duration_cast<std::chrono::microseconds>(
                        std::chrono::system_clock::now().time_since_epoch())
                        .count();
  }
  pending_ = kMagic;
  encode(begin, pending_);
  flush();
}

RecordWriter::~RecordWriter() { flush(); }

uint64_t RecordWriter::at_us(std::chrono::steady_clock::time_point time) const {
  const auto passed = std::chrono::duration_cast<std::chrono::microseconds>(time - began_).count();
  return passed < 0 ? 0 : static_cast<uint64_t>(passed);
}

bool RecordWriter::append(const Record& record) {
  const std::lock_guard lock(mutex_);
  const bool is_taken = append_locked(record);
  if (!is_taken) ++lost_records_;
  return is_taken;
}

bool RecordWriter::append_locked(const Record& record) {
  if (!failure_.empty() || pending_.size() >= kMostPending) return false;
  encode(record, pending_);
  return true;
}

uint64_t RecordWriter::name_id_locked(std::string_view name) {
  const auto found = names_.find(name);
  if (found != names_.end()) return found->second;
  if (names_.size() >= kMostNames) return 0;  // stands for "another"
  const uint64_t id = names_.size() + 1;
  names_.emplace(name, id);
  // Whatever refers to it is lost without it, so it is kept even where there is no room.
  encode(Name{.id = id, .text = std::string(name)}, pending_);
  return id;
}

uint64_t RecordWriter::name_id(std::string_view name) {
  const std::lock_guard lock(mutex_);
  return name_id_locked(name);
}

bool RecordWriter::append_values(int64_t step,
                                 std::span<const std::pair<std::string_view, double>> values) {
  const std::lock_guard lock(mutex_);
  Values record{.time_us = now_us(), .step = step};
  record.values.reserve(values.size());
  for (const auto& [name, value] : values) {
    record.values.push_back({.name = name_id_locked(name), .value = value});
  }
  const bool is_taken = append_locked(record);
  if (!is_taken) ++lost_values_;
  return is_taken;
}

// A torn record at the end of a file is what a reader waits for, so after a failed write nothing
// may follow.
void RecordWriter::flush() {
  const std::lock_guard file_lock(file_mutex_);
  {
    const std::lock_guard lock(mutex_);
    if (!failure_.empty()) return;
    if (lost_records_ + lost_values_ > 0) {
      encode(Lost{.time_us = now_us(), .events = lost_records_, .values = lost_values_}, pending_);
    }
    writing_.swap(pending_);
  }
  size_t written = 0;
  while (written < writing_.size()) {
    const ssize_t count =
        ::write(file_.get(), writing_.data() + written, writing_.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      const std::lock_guard lock(mutex_);
      failure_ = path_.string() + ": " + std::strerror(errno);
      break;
    }
    written += static_cast<size_t>(count);
  }
  writing_.clear();
}

std::string RecordWriter::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

}  // namespace accelerate::run_record
