#include "launch/local_supervisor.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>

#include "accelerate/errors.h"
#include "launch/job_guard.h"
#include "launch/machine.h"
#include "launch/orphan_reaper.h"
#include "launch/signal_inbox.h"
#include "launch/worker_environment.h"
#include "launch/worker_output.h"
#include "launch/worker_process.h"

namespace accelerate::launch {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr StreamKind kStreams[] = {StreamKind::kOut, StreamKind::kErr};

// `timeout` and some schedulers send a signal to the process and again to its group: a repetition
// this soon is not a person who presses Ctrl-C once more.
constexpr milliseconds kSameSignalWithin{250};

milliseconds since(Clock::time_point moment) {
  return std::chrono::duration_cast<milliseconds>(Clock::now() - moment);
}

// Waits until one of `fds` is ready. If the kernel refuses (no memory, or a limit that was lowered
// meanwhile) none is, and this pauses instead: the caller asks again and must not spin.
void poll_or_pause(std::vector<pollfd>& fds, int timeout_ms) {
  constexpr int kPauseMs = 50;
  if (poll(fds.data(), fds.size(), timeout_ms) < 0 && errno != EINTR) poll(nullptr, 0, kPauseMs);
}

struct Worker {
  int rank;
  std::unique_ptr<WorkerOutput> output;
  WorkerProcess process;
  bool killed = false;  // it had its time to stop
};

class LocalJob {
 public:
  explicit LocalJob(const LaunchPlan& plan)
      : plan_(plan), sinks_{OutputSink(STDOUT_FILENO), OutputSink(STDERR_FILENO)} {}

  LaunchOutcome run();

 private:
  enum class State { kRunning, kStopping, kKilling };
  enum class Audience { kAll, kOtherGroups };

  void start_workers();
  Worker start_worker(int rank, const WorkerSurroundings& surroundings, int null_fd);

  void wait_for_events();
  int poll_timeout() const;
  void handle_signals();
  void handle_stop_signal(const signalfd_siginfo& info);
  void suspend();
  void reap_children();
  void record_end(Worker& worker);
  WorkerFate fate_of(const Worker& worker, int wait_status) const;
  void drop_streams_without_reader();
  void flush_sinks();

  void send(int signal, Audience audience);
  void stop_workers(int signal, milliseconds grace, Audience audience);
  void kill_workers();
  bool all_ended() const { return outcome_.ends.size() == workers_.size(); }

  const LaunchPlan& plan_;
  SignalInbox inbox_;
  JobGuard guard_;
  OrphanReaper orphans_;  // after the guard, which it must not take for an orphan
  OutputSinks sinks_;
  std::vector<Worker> workers_;
  const Clock::time_point began_ = Clock::now();
  State state_ = State::kRunning;
  Clock::time_point stop_began_;
  Clock::time_point kill_at_;
  Clock::time_point last_interrupt_;
  LaunchOutcome outcome_;
};

LaunchOutcome LocalJob::run() {
  start_workers();
  while (!all_ended()) wait_for_events();
  orphans_.kill_adopted();
  flush_sinks();
  return std::move(outcome_);
}

void LocalJob::start_workers() {
  const UniqueFd null_fd(open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!null_fd) {
    throw CommError(
        {.what = "cannot open /dev/null: " + std::string(std::strerror(errno)),
         .hint = "give the container a /dev, or raise the limit on open files (ulimit -n)"});
  }
  const WorkerSurroundings surroundings{.inherited = current_environment(),
                                        .cores = available_cores()};
  workers_.reserve(static_cast<size_t>(plan_.num_processes));
  for (int rank = 0; rank < plan_.num_processes; ++rank) {
    workers_.push_back(start_worker(rank, surroundings, null_fd.get()));
  }
  for (Worker& worker : workers_) worker.process.confirm_started(plan_.command.front());
}

Worker LocalJob::start_worker(int rank, const WorkerSurroundings& surroundings, int null_fd) {
  auto output = std::make_unique<WorkerOutput>(
      OutputOptions{
          .rank = rank, .num_processes = plan_.num_processes, .prefix = plan_.prefix_output},
      sinks_);
  // A process in another group than the terminal's may not read from it: rank 0 stays in ours.
  const bool reads_terminal = rank == 0 && isatty(STDIN_FILENO);
  WorkerProcess process({.command = plan_.command,
                         .environment = worker_environment(plan_, rank, surroundings),
                         .stdin_fd = rank == 0 ? STDIN_FILENO : null_fd,
                         .stdout_fd = output->worker_fd(StreamKind::kOut),
                         .stderr_fd = output->worker_fd(StreamKind::kErr),
                         .signal_mask = inbox_.original_mask(),
                         .own_group = !reads_terminal});
  if (process.has_own_group()) guard_.watch(process.pid());
  output->close_worker_fds();
  return Worker{rank, std::move(output), std::move(process)};
}

void LocalJob::wait_for_events() {
  struct Source {
    Worker* worker;
    StreamKind kind;
  };
  std::vector<pollfd> fds{{inbox_.fd(), POLLIN, 0}};
  for (const OutputSink& sink : sinks_) {
    fds.push_back({sink.wants_write() ? sink.fd() : -1, POLLOUT, 0});
  }
  std::vector<Source> sources;
  for (Worker& worker : workers_) {
    for (const StreamKind kind : kStreams) {
      const bool readable =
          worker.output->fd(kind) >= 0 && !sinks_[static_cast<size_t>(kind)].is_full();
      if (!readable) continue;
      fds.push_back({worker.output->fd(kind), POLLIN, 0});
      sources.push_back({&worker, kind});
    }
  }

  poll_or_pause(fds, poll_timeout());

  const size_t first_source = fds.size() - sources.size();
  for (size_t i = 0; i < sources.size(); ++i) {
    if (fds[first_source + i].revents != 0) sources[i].worker->output->read(sources[i].kind);
  }
  for (size_t i = 0; i < sinks_.size(); ++i) {
    if (fds[1 + i].revents != 0) sinks_[i].write_some();
  }
  drop_streams_without_reader();
  handle_signals();  // whatever poll said of them
  if (state_ == State::kStopping && Clock::now() >= kill_at_) kill_workers();
}

int LocalJob::poll_timeout() const {
  if (state_ != State::kStopping) return -1;
  const auto left = std::chrono::ceil<milliseconds>(kill_at_ - Clock::now());
  return static_cast<int>(std::clamp<int64_t>(left.count(), 0, 60'000));
}

void LocalJob::handle_signals() {
  // Children last: when a scheduler signals the whole job, workers that die of it did not fail.
  bool child_ended = false;
  while (const auto info = inbox_.next()) {
    switch (info->ssi_signo) {
      case SIGCHLD:
        child_ended = true;
        break;
      case SIGWINCH:
        for (Worker& worker : workers_) worker.output->copy_terminal_size();
        break;
      case SIGTSTP:
        suspend();
        break;
      default:
        handle_stop_signal(*info);
    }
  }
  if (child_ended) reap_children();
}

void LocalJob::handle_stop_signal(const signalfd_siginfo& info) {
  const int signal = static_cast<int>(info.ssi_signo);
  const bool is_repetition = signal == SIGINT && since(last_interrupt_) < kSameSignalWithin;
  if (signal == SIGINT && !is_repetition) last_interrupt_ = Clock::now();
  if (state_ == State::kRunning) {
    outcome_.stop_signal = signal;
    // What the terminal sends it has sent to our whole group.
    const bool from_terminal = info.ssi_code == SI_KERNEL;
    stop_workers(signal, plan_.signal_grace,
                 from_terminal ? Audience::kOtherGroups : Audience::kAll);
    return;
  }
  if (signal == SIGINT && !is_repetition) kill_workers();
}

// Ctrl-Z: the workers sleep while we do.
void LocalJob::suspend() {
  const auto slept_from = Clock::now();
  send(SIGSTOP, Audience::kAll);
  kill(getpid(), SIGSTOP);
  send(SIGCONT, Audience::kAll);
  kill_at_ += Clock::now() - slept_from;
}

void LocalJob::reap_children() {
  while (true) {
    siginfo_t info{};
    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return;
    const auto worker = std::find_if(workers_.begin(), workers_.end(), [&](const Worker& each) {
      return !each.process.is_reaped() && each.process.pid() == info.si_pid;
    });
    if (worker != workers_.end()) {
      record_end(*worker);
    } else {
      // An orphan that a worker left to us, a child from before the job, or the guard.
      waitpid(info.si_pid, nullptr, WNOHANG);
      guard_.child_reaped(info.si_pid);
      orphans_.child_reaped(info.si_pid);
    }
  }
}

void LocalJob::record_end(Worker& worker) {
  const int status = worker.process.reap();
  guard_.forget(worker.process.pid());
  worker.output->finish();
  const WorkerFate fate = fate_of(worker, status);
  outcome_.ends.push_back({.rank = worker.rank,
                           .pid = worker.process.pid(),
                           .wait_status = status,
                           .after = since(began_),
                           .fate = fate,
                           .last_lines = worker.output->last_lines()});
  if (fate == WorkerFate::kFailed && state_ == State::kRunning) {
    stop_workers(SIGTERM, plan_.failure_grace, Audience::kAll);
  }
}

WorkerFate LocalJob::fate_of(const Worker& worker, int wait_status) const {
  const bool stopped_by_failure = state_ != State::kRunning && !outcome_.stop_signal;
  if (WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0) {
    return stopped_by_failure ? WorkerFate::kStopped : WorkerFate::kSucceeded;
  }
  if (state_ == State::kRunning) return WorkerFate::kFailed;
  if (worker.killed) return WorkerFate::kKilled;
  if (outcome_.stop_signal) return WorkerFate::kStopped;
  const bool obeyed = (WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == SIGTERM) ||
                      (WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 128 + SIGTERM);
  return obeyed ? WorkerFate::kStopped : WorkerFate::kFailed;
}

void LocalJob::drop_streams_without_reader() {
  for (const StreamKind kind : kStreams) {
    if (!sinks_[static_cast<size_t>(kind)].is_broken()) continue;
    for (Worker& worker : workers_) worker.output->close(kind);
  }
}

// Waits for the reader of our output; a signal says that nobody wants to wait.
void LocalJob::flush_sinks() {
  while (sinks_[0].wants_write() || sinks_[1].wants_write()) {
    std::vector<pollfd> fds{{inbox_.fd(), POLLIN, 0}};
    for (const OutputSink& sink : sinks_) {
      fds.push_back({sink.wants_write() ? sink.fd() : -1, POLLOUT, 0});
    }
    poll_or_pause(fds, -1);
    for (size_t i = 0; i < sinks_.size(); ++i) {
      if (fds[1 + i].revents != 0) sinks_[i].write_some();
    }
    while (const auto info = inbox_.next()) {
      if (info->ssi_signo == SIGINT || info->ssi_signo == SIGTERM || info->ssi_signo == SIGHUP ||
          info->ssi_signo == SIGQUIT) {
        return;
      }
    }
  }
}

void LocalJob::send(int signal, Audience audience) {
  for (const Worker& worker : workers_) {
    if (audience == Audience::kAll || worker.process.has_own_group()) worker.process.send(signal);
  }
}

void LocalJob::stop_workers(int signal, milliseconds grace, Audience audience) {
  state_ = State::kStopping;
  stop_began_ = Clock::now();
  kill_at_ = stop_began_ + grace;
  send(signal, audience);
}

void LocalJob::kill_workers() {
  state_ = State::kKilling;
  outcome_.grace = since(stop_began_);
  for (Worker& worker : workers_) {
    if (!worker.process.is_reaped()) worker.killed = true;
  }
  send(SIGKILL, Audience::kAll);
}

}  // namespace

LaunchOutcome run_local_job(const LaunchPlan& plan) { return LocalJob(plan).run(); }

}  // namespace accelerate::launch
