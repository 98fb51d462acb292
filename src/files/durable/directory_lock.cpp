#include "files/durable/directory_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "base/host_name.h"

namespace accelerate::files {
namespace {

// Who holds the lock, as the owner wrote it into the file. It may not have come so far yet.
std::string owner_in(const UniqueFd& file, const std::filesystem::path& path) {
  std::array<char, 256> text{};
  const size_t count = read_some(file, std::as_writable_bytes(std::span(text)), path);
  std::string_view line(text.data(), count);
  line = line.substr(0, line.find('\n'));
  return line.empty() ? "another process" : std::string(line);
}

std::string own_name() { return "process " + std::to_string(getpid()) + " on " + host_name(); }

// Whether the file that is open is still the one under that path: its last owner may have removed
// it between our open() and our flock().
bool is_still(const UniqueFd& file, const std::filesystem::path& path) {
  struct stat opened {};
  struct stat named {};
  return fstat(file.get(), &opened) == 0 && lstat(path.c_str(), &named) == 0 &&
         opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

}  // namespace

DirectoryLock::DirectoryLock(std::filesystem::path file) : file_(std::move(file)) {
  for (;;) {
    UniqueFd opened(open(file_.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666));
    if (!opened && errno == EINTR) continue;
    if (!opened) throw system_error("the lock file cannot be created", file_, errno);
    if (flock(opened.get(), LOCK_EX | LOCK_NB) == 0) {
      if (!is_still(opened, file_)) continue;
      exclusive_ = true;
    } else if (errno == EINTR) {
      continue;
    } else if (errno == EWOULDBLOCK) {
      throw CheckpointError({.what = "another save is under way: " + owner_in(opened, file_),
                             .where = file_.string(),
                             .hint = "wait until it is done, or save to another folder"});
    } else if (errno != ENOSYS && errno != EOPNOTSUPP && errno != ENOLCK) {
      throw system_error("the lock cannot be taken", file_, errno);
    }
    descriptor_ = std::move(opened);
    break;
  }
  try {
    // What an owner that died has left behind its line does not matter.
    const std::string owner = own_name() + "\n";
    write_all(descriptor_, std::as_bytes(std::span(owner)), file_);
  } catch (const CheckpointError&) {
    unlink(file_.c_str());
    throw;
  }
}

DirectoryLock::~DirectoryLock() {
  if (descriptor_) unlink(file_.c_str());
}

}  // namespace accelerate::files
