#include "notebook/guardian.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <type_traits>

#include "accelerate/errors.h"
#include "base/time_to_name_the_cause.h"
#include "launch/job/orphan_reaper.h"

namespace accelerate::notebook {
namespace {

using Clock = std::chrono::steady_clock;
using Workers = std::vector<std::unique_ptr<ForkedWorker>>;

[[noreturn]] void throw_no_room(const std::string& why) {
  throw CommError(
      {.what = why, .hint = "start fewer workers, or raise the limit on processes (ulimit -u)"});
}

// What the guardian tells the caller about a worker, in memory that both see.
struct EndRecord {
  bool is_known;
  bool was_stopped;
  int wait_status;
};

class SharedRecords {
 public:
  explicit SharedRecords(size_t workers) : workers_(workers) {
    memory_ = mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory_ == MAP_FAILED) {
      throw_no_room("cannot start workers: " + std::string(std::strerror(errno)));
    }
  }
  ~SharedRecords() { munmap(memory_, bytes()); }
  SharedRecords(const SharedRecords&) = delete;
  SharedRecords& operator=(const SharedRecords&) = delete;

  EndRecord& end(size_t worker) { return reinterpret_cast<EndRecord*>(problem() + kText)[worker]; }
  // Why not all workers could be started; empty if they could.
  const char* why_not_started() { return problem(); }
  void set_why_not_started(const std::string& why) {
    std::strncpy(problem(), why.empty() ? "cannot start workers" : why.c_str(), kText - 1);
  }

 private:
  static constexpr size_t kText = 256;
  static_assert(std::is_trivial_v<EndRecord> && kText % alignof(EndRecord) == 0);

  size_t bytes() const { return kText + workers_ * sizeof(EndRecord); }
  char* problem() { return static_cast<char*>(memory_); }

  size_t workers_;
  void* memory_;
};

// The guardian takes signals one by one, where it waits for them; none interrupts it.
void hold_signals_back() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, nullptr);
  signal(SIGCHLD, SIG_DFL);  // ignored, children would leave no status
}

// Blocks until a child has ended, the caller has died or the time is over.
void wait_for_news(std::optional<Clock::time_point> until, bool& caller_is_gone) {
  sigset_t news;
  sigemptyset(&news);
  sigaddset(&news, SIGCHLD);
  sigaddset(&news, SIGTERM);
  int taken = 0;
  if (until) {
    const auto left =
        std::max(std::chrono::nanoseconds(*until - Clock::now()), std::chrono::nanoseconds(0));
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
    const timespec timeout{.tv_sec = static_cast<time_t>(seconds.count()),
                           .tv_nsec = static_cast<long>((left - seconds).count())};
    taken = sigtimedwait(&news, nullptr, &timeout);
  } else {
    taken = sigwaitinfo(&news, nullptr);
  }
  if (taken == SIGTERM) caller_is_gone = true;
}

// Takes the status of all children that have ended: workers, and orphans of theirs.
void collect_ended(const Workers& workers) {
  siginfo_t child{};
  while (waitid(P_ALL, 0, &child, WEXITED | WNOHANG | WNOWAIT) == 0 && child.si_pid != 0) {
    const auto worker = std::find_if(workers.begin(), workers.end(),
                                     [&](auto& w) { return w->pid() == child.si_pid; });
    if (worker != workers.end()) {
      (*worker)->collect();
    } else {
      waitpid(child.si_pid, nullptr, 0);
    }
    child = {};
  }
}

void stop_all(const Workers& workers, int signal) {
  for (const auto& worker : workers) worker->stop(signal);
}

// Blocks until all workers have ended; stops them once one has failed.
void supervise(const Workers& workers, std::chrono::milliseconds grace) {
  std::optional<Clock::time_point> stop_at;
  std::optional<Clock::time_point> kill_at;
  bool killed = false;
  bool caller_is_gone = false;
  while (true) {
    collect_ended(workers);
    const bool all_ended =
        std::all_of(workers.begin(), workers.end(), [](auto& w) { return w->has_ended(); });
    if (all_ended) return;
    for (const auto& worker : workers) {
      if (!worker->has_ended() || worker->has_succeeded()) continue;
      const auto now = Clock::now();
      const auto wanted = worker->only_lost_a_peer() ? now + kTimeToNameTheCause : now;
      stop_at = std::min(stop_at.value_or(wanted), wanted);
    }
    if (stop_at && Clock::now() >= *stop_at && !kill_at) {
      stop_all(workers, SIGTERM);
      kill_at = Clock::now() + grace;
    }
    if (!killed && (caller_is_gone || (kill_at && Clock::now() >= *kill_at))) {
      stop_all(workers, SIGKILL);
      killed = true;
    }
    wait_for_news(killed ? std::nullopt : (kill_at ? kill_at : stop_at), caller_is_gone);
  }
}

void run_workers(const std::vector<ForkedStart>& starts, std::chrono::milliseconds grace,
                 SharedRecords& records) {
  launch::OrphanReaper orphans;
  Workers workers;
  try {
    for (const ForkedStart& start : starts) {
      workers.push_back(std::make_unique<ForkedWorker>(start));
    }
    supervise(workers, grace);
    for (size_t i = 0; i < workers.size(); ++i) {
      records.end(i) = {.is_known = true,
                        .was_stopped = workers[i]->was_stopped(),
                        .wait_status = workers[i]->wait_status()};
    }
  } catch (const CommError& error) {
    workers.clear();  // ends those that were started
    records.set_why_not_started(error.message());
  }
  orphans.kill_adopted();
}

// As little as possible of the program runs in it.
[[noreturn]] void be_guardian(const std::vector<ForkedStart>& starts,
                              std::chrono::milliseconds grace, SharedRecords& records,
                              pid_t caller) noexcept {
  hold_signals_back();
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != caller) _exit(1);  // it died before the line above
  try {
    run_workers(starts, grace, records);
  } catch (const std::exception& error) {
    records.set_why_not_started(error.what());
  }
  _exit(0);
}

}  // namespace

std::vector<ForkedEnd> run_guarded(const std::vector<ForkedStart>& starts,
                                   std::chrono::milliseconds grace) {
  SharedRecords records(starts.size());
  flush_output();
  const pid_t caller = getpid();
  const pid_t guardian = fork();
  if (guardian < 0) throw_no_room("cannot start workers: " + std::string(std::strerror(errno)));
  if (guardian == 0) be_guardian(starts, grace, records, caller);
  // Another error than EINTR: it has ended, and the program has taken its status before us.
  while (waitpid(guardian, nullptr, 0) < 0 && errno == EINTR) {
  }
  if (*records.why_not_started() != '\0') throw_no_room(records.why_not_started());
  std::vector<ForkedEnd> ends;
  for (size_t i = 0; i < starts.size(); ++i) {
    const EndRecord& record = records.end(i);
    ends.push_back(
        {.rank = starts[i].rank, .report = starts[i].report.read(), .stopped = record.was_stopped});
    if (record.is_known) ends.back().wait_status = record.wait_status;
  }
  return ends;
}

}  // namespace accelerate::notebook
