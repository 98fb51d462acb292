#include "unsynced.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "fault_plan.h"

namespace faults {
namespace {

enum class Kind { kCreated, kUnlinked, kMadeFolder, kRemovedFolder, kRenamed, kExchanged };

// A change of names in a folder.
struct Change {
  Kind kind;
  bool of_folder;
  std::string path;   // when it happened; the new name of what was renamed
  std::string now;    // the same place today: folders above may have got other names since
  std::string other;  // the old name; where a file that was unlinked is kept
};

struct Account {
  std::map<ino_t, off_t> safe_bytes;  // of the files that were written
  std::set<ino_t> at_risk;            // those that were not synced since
  std::vector<Change> changes;
  std::string graves = getenv("FAULTS_GRAVES") == nullptr ? "" : getenv("FAULTS_GRAVES");
  int buried = 0;
  std::mutex mutex;
};

Account& account() {
  static Account& instance = *new Account;
  return instance;
}

std::string parent_of(const std::string& path) { return path.substr(0, path.rfind('/')); }

struct stat facts_of(const std::string& path) {
  struct stat facts {};
  if (lstat(path.c_str(), &facts) != 0) facts = {};
  return facts;
}

void note(Kind kind, bool of_folder, const std::string& path, const std::string& other = "") {
  Account& current = account();
  const std::lock_guard guard(current.mutex);
  current.changes.push_back({kind, of_folder, path, path, other});
}

// The place that `path` is after `from` was renamed to `to`.
std::string moved(const std::string& path, const std::string& from, const std::string& to) {
  return path.starts_with(from + "/") ? to + path.substr(from.size()) : path;
}

// With system calls of its own: the hooks must not see it.
void rename_raw(const std::string& from, const std::string& to, unsigned flags) {
  syscall(SYS_renameat2, AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), flags);
}

void run_shell(const std::string& command) {
  unsetenv("LD_PRELOAD");
  if (std::system(command.c_str()) != 0) std::perror(("faults: " + command).c_str());
}

void take_back(const Change& change, const std::string& path) {
  switch (change.kind) {
    case Kind::kCreated:
      syscall(SYS_unlinkat, AT_FDCWD, path.c_str(), 0);
      return;
    case Kind::kUnlinked:
      rename_raw(change.other, path, 0);
      return;
    case Kind::kMadeFolder:
      // Its files were synced perhaps, but nothing leads to them: they are lost with it.
      run_shell("rm -rf '" + path + "'");
      return;
    case Kind::kRemovedFolder:
      syscall(SYS_mkdirat, AT_FDCWD, path.c_str(), 0777);
      return;
    case Kind::kRenamed:
      rename_raw(path, change.other, 0);
      return;
    case Kind::kExchanged:
      rename_raw(path, change.other, RENAME_EXCHANGE);
      return;
  }
}

}  // namespace

void note_written(const std::string& path) {
  Account& current = account();
  const std::lock_guard guard(current.mutex);
  current.at_risk.insert(facts_of(path).st_ino);
}

void note_synced(const std::string& path, bool is_directory) {
  Account& current = account();
  const std::lock_guard guard(current.mutex);
  if (is_directory) {
    std::erase_if(current.changes,
                  [&](const Change& change) { return parent_of(change.now) == path; });
    return;
  }
  const struct stat facts = facts_of(path);
  current.at_risk.erase(facts.st_ino);
  current.safe_bytes[facts.st_ino] = facts.st_size;
}

void note_created(const std::string& path) {
  note(Kind::kCreated, false, path);
  Account& current = account();
  const std::lock_guard guard(current.mutex);
  current.safe_bytes[facts_of(path).st_ino] = 0;  // the number may have been another file's before
}

void note_made_directory(const std::string& path) { note(Kind::kMadeFolder, true, path); }

void note_removed_directory(const std::string& path) { note(Kind::kRemovedFolder, true, path); }

void note_renamed(const std::string& from, const std::string& to) {
  note(Kind::kRenamed, S_ISDIR(facts_of(to).st_mode), to, from);
  Account& current = account();
  const std::lock_guard guard(current.mutex);
  for (Change& change : current.changes) change.now = moved(change.now, from, to);
}

void note_exchanged(const std::string& a, const std::string& b) {
  note(Kind::kExchanged, S_ISDIR(facts_of(a).st_mode), a, b);
  Account& current = account();
  const std::lock_guard guard(current.mutex);
  for (Change& change : current.changes) {
    const std::string place = moved(change.now, a, b);
    change.now = place == change.now ? moved(change.now, b, a) : place;
  }
}

void note_unlinking(const std::string& path) {
  Account& current = account();
  if (current.graves.empty()) return;
  const std::string grave = current.graves + "/" + std::to_string(++current.buried);
  if (syscall(SYS_linkat, AT_FDCWD, path.c_str(), AT_FDCWD, grave.c_str(), 0) != 0) return;
  note(Kind::kUnlinked, false, path, grave);
}

void forget_unsynced(LostNames lost) {
  Account& current = account();
  for (auto change = current.changes.rbegin(); change != current.changes.rend(); ++change) {
    if (lost == LostNames::kNone) break;
    if (lost == LostNames::kFolders && !change->of_folder) continue;
    if (lost == LostNames::kFiles && change->of_folder) continue;
    // Folders that keep their new names have to be found under them.
    take_back(*change, lost == LostNames::kFiles ? change->now : change->path);
  }
  for (const ino_t inode : current.at_risk) {
    // By its inode: it may have moved with its folder since it was written.
    run_shell("find '" + std::string(getenv("FAULTS_FOLDER")) + "' -inum " + std::to_string(inode) +
              " -exec truncate -s " + std::to_string(current.safe_bytes[inode]) + " {} ';'");
  }
  die();
}

}  // namespace faults
