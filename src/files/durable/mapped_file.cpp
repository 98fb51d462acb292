#include "files/durable/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "accelerate/errors.h"
#include "base/unique_fd.h"

namespace accelerate {
namespace {

[[noreturn]] void refuse_file(const std::filesystem::path& path, const std::string& what,
                              const std::string& hint) {
  throw DataError({.what = what, .where = path.string(), .hint = hint});
}

std::string reason_of(int system_error) { return std::generic_category().message(system_error); }

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path, const std::string& kind, Writes writes)
    : path_(path) {
  // Without O_NONBLOCK opening a pipe would wait for a writer.
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat facts {};
  if (!file || fstat(file.get(), &facts) != 0) {
    refuse_file(path, kind + " cannot be opened: " + reason_of(errno),
                "check the path and its permissions");
  }
  if (S_ISDIR(facts.st_mode)) {
    refuse_file(path, kind + " cannot be opened: " + reason_of(EISDIR),
                "name a file inside the folder");
  }
  if (!S_ISREG(facts.st_mode)) {
    refuse_file(path, kind + " is not a regular file, it cannot be mapped into memory",
                "copy its contents into a file");
  }
  if (facts.st_size == 0) refuse_file(path, kind + " is empty", "check how it was written");

  const bool is_private = writes == Writes::kPrivate;
  // No reservation: else a mapping larger than the memory of the machine would be refused.
  void* address = mmap(nullptr, static_cast<size_t>(facts.st_size),
                       is_private ? PROT_READ | PROT_WRITE : PROT_READ,
                       is_private ? MAP_PRIVATE | MAP_NORESERVE : MAP_SHARED, file.get(), 0);
  if (address == MAP_FAILED) {
    refuse_file(path, kind + " cannot be mapped into memory: " + reason_of(errno),
                "check the limits of the process on address space (ulimit -v)");
  }
  data_ = static_cast<std::byte*>(address);
  size_ = static_cast<size_t>(facts.st_size);
  device_ = facts.st_dev;
  inode_ = facts.st_ino;
}

MappedFile::~MappedFile() { munmap(data_, size_); }

bool MappedFile::is_same_file(int descriptor) const {
  struct stat facts {};
  return fstat(descriptor, &facts) == 0 && facts.st_dev == device_ && facts.st_ino == inode_;
}

void MappedFile::begin_scan() const { madvise(data_, size_, MADV_SEQUENTIAL); }

void MappedFile::forget(size_t offset, size_t bytes) const {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t begin = (offset + page - 1) / page * page;
  const size_t end = (offset + bytes) / page * page;
  if (begin < end) madvise(data_ + begin, end - begin, MADV_DONTNEED);
}

void MappedFile::end_scan() const { madvise(data_, size_, MADV_NORMAL); }

}  // namespace accelerate
