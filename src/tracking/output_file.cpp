#include "tracking/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <fstream>
#include <iterator>
#include <span>
#include <system_error>
#include <utility>

#include "accelerate/tracker.h"
#include "files/durable/replace_file.h"

namespace accelerate::tracking {
namespace {

TrackerError file_error(const std::string& what, const std::filesystem::path& path, int error) {
  const bool is_full = error == ENOSPC || error == EDQUOT;
  return TrackerError({.what = what + ": " + std::generic_category().message(error),
                       .where = path.string(),
                       .hint = is_full ? "make room on the disk: what was logged waits in memory"
                                       : "check the permissions, or set another logging_dir"});
}

}  // namespace

void make_folders(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) throw file_error("the folder cannot be made", path, error.value());
}

OutputFile::OutputFile(std::filesystem::path path, At at) : path_(std::move(path)) {
  if (path_.has_parent_path()) make_folders(path_.parent_path());
  const int flags = O_WRONLY | O_CREAT | O_CLOEXEC | (at == At::kEnd ? O_APPEND : O_TRUNC);
  fd_ = UniqueFd(::open(path_.c_str(), flags, 0644));
  if (!fd_) throw file_error("the file cannot be opened", path_, errno);
  struct stat status {};
  if (::fstat(fd_.get(), &status) == 0) written_ = static_cast<size_t>(status.st_size);
}

void OutputFile::append(std::string_view bytes) {
  if (waiting_.size() + bytes.size() > kMostWaiting) {
    throw TrackerError({.what = "what was logged is lost: too much waits to be written",
                        .where = path_.string(),
                        .hint = "make room on the disk"});
  }
  waiting_ += bytes;
}

void OutputFile::flush() {
  size_t done = 0;
  int error = 0;
  while (done < waiting_.size()) {
    const ssize_t count = ::write(fd_.get(), waiting_.data() + done, waiting_.size() - done);
    if (count >= 0) {
      done += static_cast<size_t>(count);
    } else if (errno != EINTR) {
      error = errno;
      break;
    }
  }
  waiting_.erase(0, done);
  written_ += done;
  if (error != 0) throw file_error("the file cannot be written", path_, error);
}

void OutputFile::reopen() {
  OutputFile now(path_, At::kEnd);
  fd_ = std::move(now.fd_);
  written_ = now.written_;
}

void OutputFile::close() {
  flush();
  fd_.reset();
}

std::string read_file(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return {};
  std::ifstream file(path, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file) throw file_error("the file cannot be read", path, errno != 0 ? errno : EIO);
  return bytes;
}

bool ends_with_line_feed(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file || file.tellg() <= 0) return true;
  file.seekg(-1, std::ios::end);
  return file.get() == '\n';
}

void write_file(const std::filesystem::path& path, std::string_view bytes) {
  if (path.has_parent_path()) make_folders(path.parent_path());
  try {
    files::replace_file(
        path, [&](files::ByteSink& sink) { sink.write(std::as_bytes(std::span(bytes))); });
  } catch (const CheckpointError& error) {
    throw TrackerError({.what = error.message(), .where = path.string(), .hint = error.hint()});
  }
}

}  // namespace accelerate::tracking
