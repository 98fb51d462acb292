#include "config/config_path.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "accelerate/errors.h"
#include "base/unique_fd.h"
#include "base/user_folders.h"

namespace accelerate::config {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const fs::path& path, const std::string& step) {
  const std::string reason = std::strerror(errno);
  throw FileWriteError({.what = step + ": " + reason, .where = path.string()});
}

// Signals wait while this lives.
class SignalsHeld {
 public:
  SignalsHeld() {
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &before_);
  }
  SignalsHeld(const SignalsHeld&) = delete;
  SignalsHeld& operator=(const SignalsHeld&) = delete;
  ~SignalsHeld() { sigprocmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_{};
};

bool write_all(int fd, const std::string& text) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t count = write(fd, text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    done += static_cast<size_t>(count);
  }
  return fsync(fd) == 0;
}

mode_t mode_for(const fs::path& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) == 0) return status.st_mode & 0777;
  const mode_t mask = umask(0);
  umask(mask);
  return 0666 & ~mask;
}

}  // namespace

fs::path default_config_path() {
  return hugging_face_folder() / "accelerate" / "default_config.yaml";
}

std::string config_text(const FileNode& document, const fs::path& path) {
  return path.extension() == ".json" ? json_text(document) : yaml_text(document);
}

void require_writable(const fs::path& path) {
  std::error_code error;
  fs::path folder = fs::absolute(path, error).parent_path();
  while (!folder.empty() && !fs::exists(folder, error) && folder != folder.root_path()) {
    folder = folder.parent_path();
  }
  errno = ENOTDIR;
  const bool is_writable =
      fs::is_directory(folder, error) && access(folder.c_str(), W_OK | X_OK) == 0;
  if (!is_writable) fail(folder, "the file cannot be written there");
  if (!fs::is_directory(path, error)) return;
  errno = EISDIR;
  fail(path, "the file cannot be written there");
}

void replace_file(const fs::path& path, const std::string& text) {
  std::error_code error;
  const fs::path target = fs::is_symlink(path, error) ? fs::weakly_canonical(path, error) : path;
  if (target.has_parent_path()) {
    fs::create_directories(target.parent_path(), error);
    if (error) {
      throw FileWriteError({.what = "the folder cannot be created: " + error.message(),
                            .where = target.parent_path().string()});
    }
  }
  const SignalsHeld signals;
  std::string temporary = target.string() + ".XXXXXX";
  UniqueFd file(mkostemp(temporary.data(), O_CLOEXEC));
  if (!file) fail(target, "the file cannot be written");
  const bool is_written = fchmod(file.get(), mode_for(target)) == 0 && write_all(file.get(), text);
  const int reason = errno;
  file.reset();
  if (!is_written || rename(temporary.c_str(), target.c_str()) != 0) {
    if (!is_written) errno = reason;
    const int kept = errno;
    unlink(temporary.c_str());
    errno = kept;
    fail(target, "the file cannot be written");
  }
  const std::string folder = target.has_parent_path() ? target.parent_path().string() : ".";
  // A folder that may be written but not read: the file is in place.
  const UniqueFd opened(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (opened) fsync(opened.get());
}

}  // namespace accelerate::config
