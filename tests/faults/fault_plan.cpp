#include "fault_plan.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <mutex>
#include <string_view>
#include <utility>

#include "unsynced.h"

namespace faults {
namespace {

std::string variable(const char* name) {
  const char* value = getenv(name);
  return value == nullptr ? "" : value;
}

constexpr std::array<std::pair<std::string_view, int>, 6> kReasons{{{"EINTR", EINTR},
                                                                    {"EIO", EIO},
                                                                    {"ENOSPC", ENOSPC},
                                                                    {"EDQUOT", EDQUOT},
                                                                    {"EROFS", EROFS},
                                                                    {"EINVAL", EINVAL}}};

int reason_of(std::string_view name) {
  for (const auto& [text, reason] : kReasons) {
    if (text == name) return reason;
  }
  return 0;
}

struct Plan {
  std::string folder = variable("FAULTS_FOLDER");
  std::string log = variable("FAULTS_LOG");
  std::string rank = variable("FAULTS_RANK");
  std::string action = variable("FAULTS_ACTION");
  std::string always = variable("FAULTS_ALWAYS");
  long at = atol(variable("FAULTS_AT").c_str());
  long count = 0;
  std::mutex mutex;
};

// Never destroyed: calls may come from destructors of the program.
Plan& plan() {
  static Plan& instance = *new Plan;
  return instance;
}

// With system calls of its own: the hooks must not see it.
void write_log(const Plan& plan, const Call& call, const std::string& rank) {
  if (plan.log.empty()) return;
  const std::string line = (rank.empty() ? "0" : rank) + " " + std::to_string(plan.count) + " " +
                           call.name + " " + call.path + "\n";
  const long file = syscall(SYS_openat, AT_FDCWD, plan.log.c_str(),
                            O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  if (file < 0 || syscall(SYS_write, file, line.data(), line.size()) < 0) die();
  syscall(SYS_close, file);
}

Verdict fail(int reason) {
  errno = reason;
  return Verdict::kFail;
}

Verdict act(const Plan& plan, const Call& call) {
  if (plan.action == "full") return call.needs_space ? fail(ENOSPC) : Verdict::kPass;
  if (plan.action == "dead") return fail(EIO);
  if (plan.count != plan.at) return Verdict::kPass;
  if (plan.action == "kill") die();
  if (plan.action == "powercut") forget_unsynced(LostNames::kAll);
  if (plan.action == "powercut-data") forget_unsynced(LostNames::kNone);
  if (plan.action == "powercut-files") forget_unsynced(LostNames::kFiles);
  if (plan.action == "powercut-folders") forget_unsynced(LostNames::kFolders);
  if (plan.action == "torn") {
    if (call.is_write) return Verdict::kTorn;
    die();
  }
  if (plan.action == "short") return call.is_write ? Verdict::kHalf : Verdict::kPass;
  const int reason = reason_of(plan.action);
  if (reason == 0) die();  // an unknown action: the driver sees a process that was killed too early
  return fail(reason);
}

}  // namespace

bool is_watched(const std::string& path) {
  const std::string& folder = plan().folder;
  return !folder.empty() && path.starts_with(folder) &&
         (path.size() == folder.size() || path[folder.size()] == '/');
}

Verdict judge(const Call& call) {
  if (!is_watched(call.path)) return Verdict::kPass;
  Plan& current = plan();
  const std::string rank = variable("RANK");
  if (!current.rank.empty() && rank != current.rank) return Verdict::kPass;
  const std::lock_guard guard(current.mutex);
  ++current.count;
  write_log(current, call, rank);
  if (current.at != 0 && current.count >= current.at) {
    const Verdict verdict = act(current, call);
    if (verdict != Verdict::kPass) return verdict;
  }
  const size_t colon = current.always.find(':');
  if (colon != std::string::npos && current.always.substr(0, colon) == call.name) {
    return fail(reason_of(current.always.substr(colon + 1)));
  }
  return Verdict::kPass;
}

void die() {
  kill(getpid(), SIGKILL);
  for (;;) pause();
}

std::string path_of(int descriptor) {
  const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
  std::array<char, 4096> target{};
  const ssize_t size = readlink(link.c_str(), target.data(), target.size());
  return size < 0 ? "" : std::string(target.data(), static_cast<size_t>(size));
}

std::string path_at(int directory, const char* path) {
  if (path == nullptr) return "";
  if (path[0] == '/') return path;
  if (directory != AT_FDCWD) return path_of(directory) + "/" + path;
  std::array<char, 4096> folder{};
  return getcwd(folder.data(), folder.size()) == nullptr ? path
                                                         : std::string(folder.data()) + "/" + path;
}

}  // namespace faults
