// Loaded before the C library (LD_PRELOAD), stands between a program and the system calls that
// change files: counts them, and lets one of them go wrong. See fault_plan.h for how it is told.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>

#include "fault_plan.h"
#include "unsynced.h"

namespace {

using faults::Call;
using faults::judge;
using faults::path_at;
using faults::path_of;
using faults::Verdict;

// The function of that name that would have been called without this library.
template <typename Function>
Function* real(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

bool fails(const Call& call) { return judge(call) == Verdict::kFail; }

int opened(int directory, const char* path, int flags, mode_t mode) {
  const std::string where = path_at(directory, path);
  const bool creates = (flags & O_CREAT) != 0;
  if (fails({.name = creates ? "create" : "open", .path = where, .needs_space = creates}))
    return -1;
  const bool is_new = creates && access(where.c_str(), F_OK) != 0;
  static auto* const call = real<int(int, const char*, int, mode_t)>("openat");
  const int result = call(directory, path, flags, mode);
  if (result >= 0 && is_new && faults::is_watched(where)) faults::note_created(where);
  return result;
}

// Runs a call that writes: `all` with all of the bytes, or `half` with half of them.
template <typename All, typename Half>
ssize_t written(const char* name, int file, All all, Half half) {
  const std::string where = path_of(file);
  const Verdict verdict =
      judge({.name = name, .path = where, .is_write = true, .needs_space = true});
  if (verdict == Verdict::kFail) return -1;
  const ssize_t result = verdict == Verdict::kPass ? all() : half();
  if (verdict == Verdict::kTorn) faults::die();
  if (result > 0 && faults::is_watched(where)) faults::note_written(where);
  return result;
}

int synced(const char* name, int file) {
  const std::string where = path_of(file);
  if (fails({.name = name, .path = where, .needs_space = true})) return -1;
  const int result = real<int(int)>(name)(file);
  struct stat facts {};
  if (result == 0 && faults::is_watched(where) && fstat(file, &facts) == 0) {
    faults::note_synced(where, S_ISDIR(facts.st_mode));
  }
  return result;
}

int renamed(const char* name, int from_directory, const char* from, int to_directory,
            const char* to, unsigned flags) {
  const std::string source = path_at(from_directory, from);
  const std::string target = path_at(to_directory, to);
  if (fails({.name = name, .path = source})) return -1;
  static auto* const call = real<int(int, const char*, int, const char*, unsigned)>("renameat2");
  const int result = call(from_directory, from, to_directory, to, flags);
  if (result != 0 || !faults::is_watched(source)) return result;
  if ((flags & RENAME_EXCHANGE) != 0) {
    faults::note_exchanged(source, target);
  } else {
    faults::note_renamed(source, target);
  }
  return result;
}

int removed(const char* name, int directory, const char* path, int flags) {
  const std::string where = path_at(directory, path);
  if (fails({.name = name, .path = where})) return -1;
  const bool is_file = (flags & AT_REMOVEDIR) == 0;
  if (is_file && faults::is_watched(where)) faults::note_unlinking(where);
  static auto* const call = real<int(int, const char*, int)>("unlinkat");
  const int result = call(directory, path, flags);
  if (result == 0 && !is_file && faults::is_watched(where)) faults::note_removed_directory(where);
  return result;
}

int made(const char* name, int directory, const char* path, mode_t mode) {
  const std::string where = path_at(directory, path);
  if (fails({.name = name, .path = where, .needs_space = true})) return -1;
  static auto* const call = real<int(int, const char*, mode_t)>("mkdirat");
  const int result = call(directory, path, mode);
  if (result == 0 && faults::is_watched(where)) faults::note_made_directory(where);
  return result;
}

mode_t mode_argument(int flags, va_list arguments) {
  return (flags & (O_CREAT | O_TMPFILE)) != 0 ? static_cast<mode_t>(va_arg(arguments, int)) : 0;
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_argument(flags, arguments);
  va_end(arguments);
  return opened(AT_FDCWD, path, flags, mode);
}

int open64(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_argument(flags, arguments);
  va_end(arguments);
  return opened(AT_FDCWD, path, flags, mode);
}

int openat(int directory, const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_argument(flags, arguments);
  va_end(arguments);
  return opened(directory, path, flags, mode);
}

int openat64(int directory, const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_argument(flags, arguments);
  va_end(arguments);
  return opened(directory, path, flags, mode);
}

int creat(const char* path, mode_t mode) {
  return opened(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode);
}

ssize_t write(int file, const void* bytes, size_t size) {
  static auto* const call = real<ssize_t(int, const void*, size_t)>("write");
  return written(
      "write", file, [&] { return call(file, bytes, size); },
      [&] { return call(file, bytes, (size + 1) / 2); });
}

ssize_t pwrite(int file, const void* bytes, size_t size, off_t offset) {
  static auto* const call = real<ssize_t(int, const void*, size_t, off_t)>("pwrite");
  return written(
      "pwrite", file, [&] { return call(file, bytes, size, offset); },
      [&] { return call(file, bytes, (size + 1) / 2, offset); });
}

ssize_t pwrite64(int file, const void* bytes, size_t size, off_t offset) {
  return pwrite(file, bytes, size, offset);
}

ssize_t writev(int file, const iovec* parts, int count) {
  static auto* const call = real<ssize_t(int, const iovec*, int)>("writev");
  return written(
      "writev", file, [&] { return call(file, parts, count); },
      [&] { return call(file, parts, (count + 1) / 2); });
}

ssize_t read(int file, void* bytes, size_t size) {
  if (fails({.name = "read", .path = path_of(file)})) return -1;
  static auto* const call = real<ssize_t(int, void*, size_t)>("read");
  return call(file, bytes, size);
}

int fsync(int file) { return synced("fsync", file); }

int fdatasync(int file) { return synced("fdatasync", file); }

int close(int file) {
  static auto* const call = real<int(int)>("close");
  const bool failed = fails({.name = "close", .path = path_of(file)});
  const int reason = errno;
  const int result = call(file);  // also where it fails: the descriptor is gone in either case
  if (!failed) return result;
  errno = reason;
  return -1;
}

int ftruncate(int file, off_t size) {
  if (fails({.name = "ftruncate", .path = path_of(file), .needs_space = true})) return -1;
  static auto* const call = real<int(int, off_t)>("ftruncate");
  return call(file, size);
}

int ftruncate64(int file, off_t size) { return ftruncate(file, size); }

int flock(int file, int operation) {
  if (fails({.name = "flock", .path = path_of(file)})) return -1;
  static auto* const call = real<int(int, int)>("flock");
  return call(file, operation);
}

int rename(const char* from, const char* to) {
  return renamed("rename", AT_FDCWD, from, AT_FDCWD, to, 0);
}

int renameat(int from_directory, const char* from, int to_directory, const char* to) {
  return renamed("renameat", from_directory, from, to_directory, to, 0);
}

int renameat2(int from_directory, const char* from, int to_directory, const char* to,
              unsigned flags) {
  return renamed("renameat2", from_directory, from, to_directory, to, flags);
}

int unlink(const char* path) { return removed("unlink", AT_FDCWD, path, 0); }

int unlinkat(int directory, const char* path, int flags) {
  return removed("unlinkat", directory, path, flags);
}

int rmdir(const char* path) { return removed("rmdir", AT_FDCWD, path, AT_REMOVEDIR); }

int remove(const char* path) {
  struct stat facts {};
  const bool is_folder = lstat(path, &facts) == 0 && S_ISDIR(facts.st_mode);
  return is_folder ? rmdir(path) : unlink(path);
}

int mkdir(const char* path, mode_t mode) { return made("mkdir", AT_FDCWD, path, mode); }

int mkdirat(int directory, const char* path, mode_t mode) {
  return made("mkdirat", directory, path, mode);
}

}  // extern "C"
