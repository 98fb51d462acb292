// Keeps two jobs from saving to one place.
#pragma once

#include <filesystem>
#include <string>

#include "files/durable/system_calls.h"

namespace accelerate::files {

// Holds a lock file until the object goes, when the file is removed too. The lock belongs to the
// process: when it dies, however it dies, the kernel lets go. A lock file that is left behind is
// harmless.
class DirectoryLock {
 public:
  // Does not wait. Throws CheckpointError that names process and host of the owner if somebody else
  // (or this process, elsewhere) holds it.
  explicit DirectoryLock(std::filesystem::path file);
  DirectoryLock(DirectoryLock&& other) noexcept = default;
  DirectoryLock& operator=(DirectoryLock&&) = delete;
  ~DirectoryLock();

  // False where the file system knows no locks (some network file systems): then nothing keeps a
  // second job away, and nothing that looks abandoned may be removed.
  bool is_exclusive() const { return exclusive_; }

 private:
  std::filesystem::path file_;
  UniqueFd descriptor_;
  bool exclusive_ = false;
};

}  // namespace accelerate::files
