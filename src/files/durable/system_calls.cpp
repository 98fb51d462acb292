#include "files/durable/system_calls.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <system_error>

namespace accelerate::files {
namespace {

std::string reason_text(int reason) { return std::generic_category().message(reason); }

std::string hint_for(int reason, Access access) {
  switch (reason) {
    case ENOSPC:
    case EDQUOT:
      return "free space there, keep fewer checkpoints (total_limit), or save to another disk";
    case EFBIG:
      return "raise the limit on the size of files (ulimit -f)";
    case EIO:
      return "the disk or the network reports a fault: check the kernel log, or save elsewhere";
    case EACCES:
    case EPERM:
      return access == Access::kRead
                 ? "check the permissions of the file and of the folders that contain it"
                 : "check that you may write to the folder";
    case EROFS:
      return "the file system is mounted read-only: save elsewhere";
    case EEXIST:
      return "remove what is there, or choose another name";
    case ENOENT:
    case ENOTDIR:
      return "check the path";
    case EMFILE:
    case ENFILE:
      return "raise the limit on open files (ulimit -n)";
    case ESTALE:
      return "the network file system has lost the folder: mount it again";
    default:
      return "check the path and the file system that it is on";
  }
}

// Runs a system call again for as long as a signal interrupts it.
template <typename Call>
auto uninterrupted(Call call) {
  decltype(call()) result;
  do {
    result = call();
  } while (result < 0 && errno == EINTR);
  return result;
}

struct CloseStream {
  void operator()(DIR* stream) const { closedir(stream); }
};

// Takes the descriptor over.
std::vector<std::string> names_in(UniqueFd directory, const std::filesystem::path& path) {
  const std::unique_ptr<DIR, CloseStream> stream(fdopendir(directory.get()));
  if (!stream) throw system_error("the folder cannot be read", path, errno, Access::kRead);
  directory.release();
  std::vector<std::string> names;
  for (;;) {
    errno = 0;
    const dirent* entry = readdir(stream.get());
    if (entry == nullptr) break;
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  if (errno != 0) throw system_error("the folder cannot be read", path, errno, Access::kRead);
  std::sort(names.begin(), names.end());
  return names;
}

// Removes `name` of that directory with all inside it; remembers the first thing that failed.
void remove_entry(int directory, const char* name, const std::filesystem::path& path,
                  std::string& error) {
  if (uninterrupted([&] { return unlinkat(directory, name, 0); }) == 0 || errno == ENOENT) return;
  int reason = errno;
  if (reason == EISDIR || reason == EPERM) {
    UniqueFd inner(uninterrupted(
        [&] { return openat(directory, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC); }));
    if (inner) {
      const int number = inner.get();
      try {
        UniqueFd again(fcntl(number, F_DUPFD_CLOEXEC, 0));
        if (!again) throw system_error("the folder cannot be read", path, errno, Access::kRead);
        for (const std::string& entry : names_in(std::move(again), path)) {
          remove_entry(number, entry.c_str(), path / entry, error);
        }
      } catch (const CheckpointError& unreadable) {
        if (error.empty()) error = unreadable.message();
      }
      if (uninterrupted([&] { return unlinkat(directory, name, AT_REMOVEDIR); }) == 0) return;
      reason = errno;
    } else if (errno != ENOTDIR) {
      reason = errno;
    }
  }
  if (error.empty()) error = path.string() + " cannot be removed: " + reason_text(reason);
}

}  // namespace

CheckpointError system_error(const std::string& what, const std::filesystem::path& path, int reason,
                             Access access) {
  return CheckpointError({.what = what + ": " + reason_text(reason),
                          .where = path.string(),
                          .hint = hint_for(reason, access)});
}

EntryKind entry_kind(const std::filesystem::path& path) {
  struct stat facts {};
  if (uninterrupted([&] { return lstat(path.c_str(), &facts); }) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) return EntryKind::kMissing;
    throw system_error("it cannot be examined", path, errno, Access::kRead);
  }
  if (S_ISREG(facts.st_mode)) return EntryKind::kFile;
  return S_ISDIR(facts.st_mode) ? EntryKind::kDirectory : EntryKind::kOther;
}

bool can_be_seen(const std::filesystem::path& path) {
  struct stat facts {};
  return uninterrupted([&] { return lstat(path.c_str(), &facts); }) == 0;
}

bool leads_to_directory(const std::filesystem::path& path) {
  struct stat facts {};
  return stat(path.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode);
}

std::vector<std::string> entry_names(const std::filesystem::path& directory) {
  return names_in(open_directory(directory), directory);
}

UniqueFd open_directory(const std::filesystem::path& directory) {
  UniqueFd opened(
      uninterrupted([&] { return open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
  if (!opened) throw system_error("the folder cannot be opened", directory, errno, Access::kRead);
  return opened;
}

OpenedFile open_inside(const UniqueFd& directory, const std::string& name,
                       const std::filesystem::path& directory_path) {
  const std::filesystem::path path = directory_path / name;
  // Without O_NONBLOCK opening a pipe would wait for a writer.
  UniqueFd file(uninterrupted([&] {
    return openat(directory.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  }));
  if (!file && errno == ELOOP) {
    throw CheckpointError({.what = "the file is a link",
                           .where = path.string(),
                           .hint = "put the file itself there: links are not followed"});
  }
  struct stat facts {};
  if (!file || fstat(file.get(), &facts) != 0) {
    throw system_error("the file cannot be opened", path, errno, Access::kRead);
  }
  if (!S_ISREG(facts.st_mode)) {
    throw CheckpointError({.what = "this is not a regular file",
                           .where = path.string(),
                           .hint = "put a file of that name there"});
  }
  return {std::move(file), static_cast<uint64_t>(facts.st_size)};
}

UniqueFd create_file(const std::filesystem::path& path) {
  UniqueFd file(uninterrupted([&] {
    return open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
  }));
  if (!file) throw system_error("the file cannot be created", path, errno);
  return file;
}

void write_all(const UniqueFd& file, std::span<const std::byte> bytes,
               const std::filesystem::path& path) {
  while (!bytes.empty()) {
    const ssize_t written =
        uninterrupted([&] { return write(file.get(), bytes.data(), bytes.size()); });
    if (written < 0) throw system_error("the file cannot be written", path, errno);
    // A file that takes nothing and gives no reason would be tried for ever.
    if (written == 0) throw system_error("the file cannot be written", path, EIO);
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
}

size_t read_some(const UniqueFd& file, std::span<std::byte> bytes,
                 const std::filesystem::path& path) {
  size_t filled = 0;
  while (filled < bytes.size()) {
    const ssize_t count = uninterrupted(
        [&] { return read(file.get(), bytes.data() + filled, bytes.size() - filled); });
    if (count < 0) throw system_error("the file cannot be read", path, errno, Access::kRead);
    if (count == 0) break;
    filled += static_cast<size_t>(count);
  }
  return filled;
}

void sync_file(const UniqueFd& file, const std::filesystem::path& path) {
  if (uninterrupted([&] { return fsync(file.get()); }) != 0) {
    throw system_error("the file cannot be flushed to the disk", path, errno);
  }
}

void close_file(UniqueFd& file, const std::filesystem::path& path) {
  // After EINTR the descriptor is closed all the same, and the bytes were synced before.
  if (close(file.release()) != 0 && errno != EINTR) {
    throw system_error("the file cannot be closed", path, errno);
  }
}

void sync_directory(const std::filesystem::path& directory) {
  const UniqueFd opened = open_directory(directory);
  // Some network file systems refuse it because every change is on the server's disk already.
  if (uninterrupted([&] { return fsync(opened.get()); }) != 0 && errno != EINVAL) {
    throw system_error("the folder cannot be flushed to the disk", directory, errno);
  }
}

void make_directory(const std::filesystem::path& directory) {
  if (uninterrupted([&] { return mkdir(directory.c_str(), 0777); }) != 0) {
    throw system_error("the folder cannot be created", directory, errno);
  }
}

void make_directories(const std::filesystem::path& directory) {
  if (directory.empty() || leads_to_directory(directory)) return;
  make_directories(directory.parent_path());
  // Somebody else may have made it meanwhile.
  if (uninterrupted([&] { return mkdir(directory.c_str(), 0777); }) != 0) {
    const int reason = errno;
    if (!leads_to_directory(directory)) {
      throw system_error("the folder cannot be created", directory, reason);
    }
  }
  sync_directory(directory.parent_path());
}

void rename_entry(const std::filesystem::path& from, const std::filesystem::path& to) {
  if (uninterrupted([&] { return rename(from.c_str(), to.c_str()); }) != 0) {
    throw system_error("it cannot be renamed to " + to.filename().string(), from, errno);
  }
}

bool exchange_entries(const std::filesystem::path& a, const std::filesystem::path& b) {
  const auto exchange = [&] {
    return renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE);
  };
  if (uninterrupted(exchange) == 0) return true;
  if (errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP) return false;
  throw system_error("it cannot be swapped with " + b.filename().string(), a, errno);
}

bool remove_tree(const std::filesystem::path& path, std::string& error) {
  std::string failure;
  remove_entry(AT_FDCWD, path.c_str(), path, failure);
  if (failure.empty()) return true;
  error = failure;
  return false;
}

}  // namespace accelerate::files
