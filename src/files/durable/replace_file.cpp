#include "files/durable/replace_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ctime>

#include "files/durable/staged_file.h"
#include "files/durable/system_calls.h"

namespace accelerate::files {
namespace {

constexpr std::string_view kStem = "replace_file";
constexpr time_t kGraceSeconds = 60;

// Takes the lock by which others see that somebody is at work on the file; the kernel lets go when
// the process dies. Holds nothing if the file is gone, or somebody else has it.
UniqueFd lock_of(const std::filesystem::path& file) {
  UniqueFd opened(open(file.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!opened || flock(opened.get(), LOCK_EX | LOCK_NB) != 0) return UniqueFd();
  return opened;
}

// Whether a partial file has nobody who would finish it. Between its creation and its lock lie
// microseconds: one that is a minute old and not locked is nobody's. False where there are no
// locks.
bool is_abandoned(const std::filesystem::path& file) {
  const UniqueFd lock = lock_of(file);
  struct stat facts {};
  return lock && fstat(lock.get(), &facts) == 0 && facts.st_mtime + kGraceSeconds < time(nullptr);
}

// Whatever cannot be removed now stays for the next one: it is not what was asked for.
void remove_abandoned(const std::filesystem::path& folder) {
  for (const std::string& name : entry_names(folder)) {
    if (is_partial_file(name, kStem) && is_abandoned(folder / name)) {
      unlink((folder / name).c_str());
    }
  }
}

}  // namespace

void replace_file(const std::filesystem::path& path, const std::function<void(ByteSink&)>& write) {
  const std::filesystem::path target = std::filesystem::absolute(path);
  StagedFile file(target, kStem);
  const UniqueFd lock = lock_of(file.partial());
  write(file.sink());
  file.close();
  file.publish();
  sync_directory(target.parent_path());
  remove_abandoned(target.parent_path());
}

}  // namespace accelerate::files
