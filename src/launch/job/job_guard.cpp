#include "launch/job/job_guard.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "launch/plan/folder_entries.h"

namespace accelerate::launch {
namespace {

// How long a starter such as mpirun has to end its ranks.
constexpr int kPatienceMs = 10'000;
constexpr int kLookEveryMs = 20;

std::string make_token() {
  return std::to_string(getpid()) + "." +
         std::to_string(std::chrono::system_clock::now().time_since_epoch().count());
}

// A launcher may be the worker of another: its workers belong to both.
std::string make_mark(const std::string& token) {
  const char* outer = std::getenv(JobGuard::kMarkName);
  return std::string(JobGuard::kMarkName) + "=" + (outer == nullptr ? "" : outer) + "/" + token;
}

bool is_marked(const std::filesystem::path& process, const std::string& token) {
  std::ifstream stream(process / "environ");
  for (std::string each; std::getline(stream, each, '\0');) {
    if (each.starts_with(std::string(JobGuard::kMarkName) + "=")) {
      return (each + "/").find("/" + token + "/") != std::string::npos;
    }
  }
  return false;
}

// Kills all processes with `token` in their mark, and whom they start meanwhile.
void kill_marked(const std::string& token) {
  constexpr int kMaxRounds = 50;
  for (int round = 0; round < kMaxRounds; ++round) {
    bool found = false;
    for (const auto& process : folder_entries("/proc")) {
      const std::string name = process.filename().string();
      if (name.find_first_not_of("0123456789") != std::string::npos) continue;
      if (!is_marked(process, token)) continue;
      found = true;
      kill(static_cast<pid_t>(std::stol(name)), SIGKILL);
    }
    if (!found) return;
    poll(nullptr, 0, kLookEveryMs);
  }
}

// Leaves this process no descriptor of the launcher but `kept`: what it shares with the dead one
// would stay in use, such as its port and the output that somebody reads to its end.
void let_descriptors_go(int kept) {
  for (const auto& entry : folder_entries("/proc/self/fd")) {
    const int fd = std::stoi(entry.filename().string());
    if (fd != kept && fd > STDERR_FILENO) close(fd);
  }
  const int null_fd = open("/dev/null", O_RDWR);
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (null_fd < 0 || dup2(null_fd, fd) < 0) close(fd);
  }
  if (null_fd > STDERR_FILENO) close(null_fd);
}

}  // namespace

// The guard itself. Signals that end a job do not reach it: it has a session of its own.
void JobGuard::stand_guard(int from_launcher, const std::string& token) {
  setsid();
  prctl(PR_SET_NAME, "accelerate-grd");
  let_descriptors_go(from_launcher);
  std::map<pid_t, Manner> groups;
  while (true) {
    Word word{};
    const ssize_t count = read(from_launcher, &word, sizeof word);
    if (count < 0 && errno == EINTR) continue;
    if (count != static_cast<ssize_t>(sizeof word)) break;
    if (word.group > 0) {
      groups[word.group] = word.manner;
    } else {
      groups.erase(-word.group);
    }
  }
  for (const auto& [group, manner] : groups) {
    kill(-group, manner == Manner::kKill ? SIGKILL : SIGTERM);
  }
  std::erase_if(groups, [](const auto& each) { return each.second == Manner::kKill; });
  for (int waited = 0; waited < kPatienceMs && !groups.empty(); waited += kLookEveryMs) {
    poll(nullptr, 0, kLookEveryMs);
    std::erase_if(groups, [](const auto& each) { return kill(-each.first, 0) != 0; });
  }
  for (const auto& [group, manner] : groups) kill(-group, SIGKILL);
  kill_marked(token);
  _exit(0);
}

JobGuard::JobGuard() : token_(make_token()), mark_(make_mark(token_)) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return;
  const UniqueFd from_launcher(ends[0]);
  to_guard_ = UniqueFd(ends[1]);
  pid_ = fork();
  if (pid_ == 0) {
    to_guard_.reset();
    stand_guard(from_launcher.get(), token_);
  }
}

JobGuard::~JobGuard() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);  // before the pipe ends, which it would take for our death
  waitpid(pid_, nullptr, 0);
}

bool JobGuard::child_reaped(pid_t pid) {
  if (pid != pid_) return false;
  pid_ = -1;
  to_guard_.reset();
  return true;
}

void JobGuard::tell(const Word& word) {
  if (pid_ <= 0) return;
  // SIGPIPE is ignored while a job runs: it may just have died.
  [[maybe_unused]] const ssize_t written = write(to_guard_.get(), &word, sizeof word);
}

}  // namespace accelerate::launch
