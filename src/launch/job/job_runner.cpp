#include "launch/job/job_runner.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "accelerate/errors.h"
#include "base/terminal_colours.h"
#include "launch/job/orphan_reaper.h"
#include "launch/job/signal_inbox.h"
#include "launch/job/worker_group.h"
#include "launch/output/job_record.h"
#include "launch/plan/machine.h"

namespace accelerate::launch {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using Audience = WorkerGroup::Audience;

// `timeout` and some schedulers send a signal to the process and again to its group: a repetition
// this soon is not a person who presses Ctrl-C once more.
constexpr milliseconds kSameSignalWithin{250};
// For the last words to other machines, and to a reader of our output after a stop signal.
constexpr milliseconds kFarewell{2'000};

// Waits until one of `fds` is ready. If the kernel refuses (no memory, or a limit that was lowered
// meanwhile) none is, and this pauses instead and returns false: the caller asks again and must not
// spin.
bool poll_or_pause(std::vector<pollfd>& fds, int timeout_ms) {
  constexpr int kPauseMs = 50;
  if (poll(fds.data(), fds.size(), timeout_ms) >= 0) return true;
  const int error = errno;
  for (pollfd& each : fds) each.revents = 0;
  if (error == EINTR) return true;
  poll(nullptr, 0, kPauseMs);
  return false;
}

bool is_stop_signal(uint32_t signal) {
  return signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGQUIT;
}

class JobRunner {
 public:
  JobRunner(const MachinePlan& plan, JobControl& control, int lifeline)
      : plan_(plan),
        control_(control),
        lifeline_(lifeline),
        sinks_{OutputSink(STDOUT_FILENO), OutputSink(STDERR_FILENO)} {
    if (is_same_terminal(STDOUT_FILENO, STDERR_FILENO)) sinks_[1].share(sinks_[0]);
    // Workers that start others are no ranks; the launchers behind them record theirs.
    if (!plan.run_dir.empty() && plan.launcher == LauncherKind::kLocal) record_.emplace(plan);
  }

  int run();

 private:
  void obey(const Order& order);
  void tell(const std::string& text) {
    sinks_[1].enqueue(coloured_messages(fitted_messages(text, STDERR_FILENO), has_colours_));
  }
  void start(const Order& order);
  void start_workers(const Order& order);
  std::string starter_name(int place) const;
  void report_failed_start(const Error& error);
  void wait_for_events();
  int poll_timeout() const;
  void watch_lifeline(short revents);
  void handle_signals();
  void handle_stop_signal(int signal, bool from_terminal);
  void suspend();
  void reap_children();
  void report_ends();
  void flush_sinks();
  void flush_control();
  void record_start();
  void record_lines();

  const MachinePlan& plan_;
  std::string run_id_;  // "": as in the plan; members of a job learn it from the main machine
  JobControl& control_;
  int lifeline_;  // -1: none, or cut
  SignalInbox inbox_;
  JobGuard guard_;
  OrphanReaper orphans_;  // after the guard, which it must not take for an orphan
  OutputSinks sinks_;
  const bool has_colours_ = shows_colours(STDERR_FILENO);
  MachinePlan attempt_plan_{};        // with the machines that take part in the present attempt
  std::optional<WorkerGroup> group_;  // of the present attempt, until its end was reported
  int attempt_ = 0;
  std::optional<JobRecord> record_;  // null: nothing is recorded
  Clock::time_point next_lines_{};   // when the newest lines are recorded
  bool reported_failure_ = false;
  size_t reported_ends_ = 0;     // of the present attempt
  bool told_to_stop_ = false;    // by a signal
  bool stops_by_order_ = false;  // for a signal that another launcher got
  Clock::time_point last_interrupt_;
  std::optional<int> exit_code_;
};

int JobRunner::run() {
  while (true) {
    while (!exit_code_) {
      const auto order = control_.next_order();
      if (!order) break;
      obey(*order);
    }
    if (exit_code_) break;
    wait_for_events();
  }
  group_.reset();
  orphans_.kill_adopted();
  flush_control();
  flush_sinks();
  return *exit_code_;
}

void JobRunner::obey(const Order& order) {
  switch (order.kind) {
    case Order::Kind::kStart:
      start(order);
      break;
    case Order::Kind::kStop:
      if (!group_) break;
      if (order.signal != 0) {
        group_->expect_stop();
        stops_by_order_ = !group_->is_stopping();
      }
      group_->stop(order.signal == 0 ? SIGTERM : order.signal,
                   order.signal == 0 ? plan_.failure_grace : plan_.signal_grace, Audience::kAll);
      break;
    case Order::Kind::kKill:
      if (group_) group_->kill_all();
      break;
    case Order::Kind::kNote:
      tell(order.text);
      break;
    case Order::Kind::kFinish:
      tell(order.text);
      exit_code_ = order.exit_code;
      break;
  }
}

void JobRunner::start(const Order& order) {
  attempt_ = order.attempt;
  reported_failure_ = false;
  reported_ends_ = 0;
  stops_by_order_ = false;
  if (!order.run_id.empty()) run_id_ = order.run_id;
  orphans_.kill_adopted();  // what escaped the attempt before
  try {
    start_workers(order);
  } catch (const Error& error) {
    if (plan_.num_machines == 1) {
      flush_sinks();  // why it begins anew
      throw;
    }
    report_failed_start(error);  // the other machines must not wait for this one
  }
}

void JobRunner::start_workers(const Order& order) {
  group_.reset();
  attempt_plan_ = plan_;
  if (order.machines > 0 && plan_.has_range()) {
    attempt_plan_.num_processes = plan_.processes_per_machine() * order.machines;
    attempt_plan_.num_machines = order.machines;
    attempt_plan_.machine_rank = order.place;
  }
  group_.emplace(attempt_plan_,
                 Attempt{.restarts = order.attempt,
                         .main_address = order.main_address,
                         .main_port = order.main_port,
                         .run_id = run_id_},
                 GroupContext{sinks_, guard_, inbox_.original_mask()});
  record_start();
  if (!plan_.debug) return;
  const bool starts_ranks = plan_.launcher == LauncherKind::kLocal;
  for (const auto& [rank, pid] : group_->pids()) {
    const std::string who = starts_ranks ? "rank " + std::to_string(rank) : starter_name(rank);
    sinks_[1].enqueue("accelerate launch: " + who + " is process " + std::to_string(pid) + " on " +
                      short_host_name() + "\n");
  }
}

void JobRunner::record_start() {
  if (!record_) return;
  record_->begin_attempt(attempt_);
  for (const auto& [rank, pid] : group_->pids()) record_->worker_started(rank, pid);
  record_->flush();
}

void JobRunner::record_lines() {
  if (!record_ || !group_ || Clock::now() < next_lines_) return;
  next_lines_ = Clock::now() + JobRecord::kInterval;
  for (const auto& [rank, lines] : group_->last_lines()) record_->show_lines(rank, lines);
  record_->flush();
}

// "mpirun", "ssh to machine 1"
std::string JobRunner::starter_name(int place) const {
  if (plan_.launcher == LauncherKind::kSsh) return "ssh to machine " + std::to_string(place);
  return plan_.launcher == LauncherKind::kSlurm ? "srun" : "mpirun";
}

void JobRunner::report_failed_start(const Error& error) {
  constexpr int kCannotStart = 127;
  const WorkerEnd end{.rank = attempt_plan_.machine_rank * plan_.processes_per_machine(),
                      .host = short_host_name(),
                      .wait_status = W_EXITCODE(kCannotStart, 0),
                      .fate = WorkerFate::kFailed,
                      .exception = error.message()};
  for (const auto kind : {MachineReport::Kind::kFailed, MachineReport::Kind::kEnded}) {
    control_.report({.kind = kind, .attempt = attempt_, .ends = {end}});
  }
}

void JobRunner::wait_for_events() {
  std::vector<pollfd> fds{{inbox_.fd(), POLLIN, 0}, {lifeline_, POLLIN, 0}};
  for (const OutputSink& sink : sinks_) {
    fds.push_back({sink.wants_write() ? sink.fd() : -1, POLLOUT, 0});
  }
  const size_t first_of_group = fds.size();
  if (group_) group_->add_descriptors(fds);
  const size_t first_of_control = fds.size();
  control_.add_descriptors(fds);

  poll_or_pause(fds, poll_timeout());

  if (group_) {
    group_->handle_descriptors(fds.data() + first_of_group, first_of_control - first_of_group);
  }
  for (size_t i = 0; i < sinks_.size(); ++i) {
    if (fds[2 + i].revents != 0) sinks_[i].write_some();
  }
  if (group_) group_->drop_streams_without_reader();
  watch_lifeline(fds[1].revents);
  handle_signals();  // whatever poll said of them
  // A worker that failed here is told before what other machines say of the ruins.
  report_ends();
  control_.handle_descriptors(fds.data() + first_of_control, fds.size() - first_of_control);
  control_.handle_time();
  if (group_) group_->handle_time();
  record_lines();
}

int JobRunner::poll_timeout() const {
  std::optional<Clock::time_point> next = control_.deadline();
  if (group_) {
    const auto of_group = group_->deadline();
    if (of_group && (!next || *of_group < *next)) next = of_group;
    if (record_ && (!next || next_lines_ < *next)) next = next_lines_;
  }
  if (!next) return -1;
  const auto left = std::chrono::ceil<milliseconds>(*next - Clock::now());
  return static_cast<int>(std::clamp<int64_t>(left.count(), 0, 60'000));
}

void JobRunner::watch_lifeline(short revents) {
  if (lifeline_ < 0 || revents == 0) return;
  char signals[64];
  const ssize_t count = read(lifeline_, signals, sizeof signals);
  for (ssize_t i = 0; i < count; ++i) {
    if (is_stop_signal(static_cast<uint32_t>(signals[i]))) handle_stop_signal(signals[i], false);
  }
  if (count > 0 || (count < 0 && (errno == EINTR || errno == EAGAIN))) return;
  lifeline_ = -1;
  // Who told this launcher to stop has no more patience, as with a second interrupt.
  if (group_ && group_->is_stopping()) group_->kill_all();
  handle_stop_signal(SIGHUP, false);
}

void JobRunner::handle_signals() {
  // Children last: when a scheduler signals the whole job, workers that die of it did not fail.
  bool child_ended = false;
  while (const auto info = inbox_.next()) {
    switch (info->ssi_signo) {
      case SIGCHLD:
        child_ended = true;
        break;
      case SIGWINCH:
        if (group_) group_->copy_terminal_size();
        break;
      case SIGTSTP:
        suspend();
        break;
      default:
        handle_stop_signal(static_cast<int>(info->ssi_signo), info->ssi_code == SI_KERNEL);
    }
  }
  if (child_ended) reap_children();
}

void JobRunner::handle_stop_signal(int signal, bool from_terminal) {
  const bool is_repetition = signal == SIGINT && Clock::now() - last_interrupt_ < kSameSignalWithin;
  if (is_repetition) return;
  if (signal == SIGINT) last_interrupt_ = Clock::now();
  // One signal may reach several launchers, as over ssh, and an order from another be faster.
  const bool is_known = stops_by_order_ && !told_to_stop_;
  told_to_stop_ = true;
  if (group_ && group_->is_stopping()) {
    if (signal == SIGINT && !is_known) group_->kill_all();
  } else if (group_) {
    group_->expect_stop();
    // What the terminal sends it has sent to our whole group.
    group_->stop(signal, plan_.signal_grace,
                 from_terminal ? Audience::kOtherGroups : Audience::kAll);
  }
  control_.report({.kind = MachineReport::Kind::kSignal, .attempt = attempt_, .signal = signal});
}

// Ctrl-Z: the workers sleep while we do.
void JobRunner::suspend() {
  const auto slept_from = Clock::now();
  if (group_) group_->send(SIGSTOP, Audience::kAll);
  kill(getpid(), SIGSTOP);
  if (!group_) return;
  group_->send(SIGCONT, Audience::kAll);
  group_->delay_kill(Clock::now() - slept_from);
}

void JobRunner::reap_children() {
  while (true) {
    siginfo_t info{};
    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) break;
    if (group_ && group_->reap(info.si_pid)) continue;
    // An orphan that a worker left to us, a child from before the job, or the guard.
    waitpid(info.si_pid, nullptr, WNOHANG);
    if (guard_.child_reaped(info.si_pid) && !plan_.quiet) {
      sinks_[1].enqueue("accelerate launch: its guard, process " + std::to_string(info.si_pid) +
                        ", was killed: if this launcher is killed too, processes that workers have "
                        "started may be left behind\n");
    }
    orphans_.child_reaped(info.si_pid);
  }
  if (group_) group_->stop_after_failure();
}

void JobRunner::report_ends() {
  if (!group_) return;
  // A group that still runs after a failure waits for its cause.
  const bool has_news = group_->ends().size() != reported_ends_;
  const bool knows_cause = group_->is_stopping() || group_->all_ended();
  if (!has_news && (reported_failure_ || !knows_cause)) return;
  if (record_) {
    for (size_t i = reported_ends_; i < group_->ends().size(); ++i) {
      record_->worker_ended(group_->ends()[i]);
    }
    record_->flush();
  }
  reported_ends_ = group_->ends().size();
  const LaunchOutcome so_far{.ends = group_->ends()};
  const WorkerEnd* failed = so_far.first_failure();
  if (failed != nullptr && !reported_failure_ && knows_cause) {
    reported_failure_ = true;
    control_.report({.kind = MachineReport::Kind::kFailed, .attempt = attempt_, .ends = {*failed}});
  }
  if (!group_->all_ended()) return;
  const MachineReport ended{.kind = MachineReport::Kind::kEnded,
                            .attempt = attempt_,
                            .ends = so_far.ends,
                            .grace = group_->grace()};
  group_.reset();
  control_.report(ended);
}

// Waits for the reader of our output, who may never read again: not long after a signal, and no
// longer if another comes.
void JobRunner::flush_sinks() {
  const auto give_up = Clock::now() + kFarewell;
  while (sinks_[0].wants_write() || sinks_[1].wants_write()) {
    if (told_to_stop_ && Clock::now() >= give_up) return;
    std::vector<pollfd> fds{{inbox_.fd(), POLLIN, 0}};
    for (const OutputSink& sink : sinks_) {
      fds.push_back({sink.wants_write() ? sink.fd() : -1, POLLOUT, 0});
    }
    // The last words must out, even if it means to wait in write().
    const bool unasked = !poll_or_pause(fds, told_to_stop_ ? 50 : -1);
    for (size_t i = 0; i < sinks_.size(); ++i) {
      if (fds[1 + i].revents != 0 || (unasked && sinks_[i].wants_write())) sinks_[i].write_some();
    }
    while (const auto info = inbox_.next()) {
      if (is_stop_signal(info->ssi_signo)) return;
    }
  }
}

void JobRunner::flush_control() {
  const auto give_up = Clock::now() + kFarewell;
  control_.begin_farewell();
  while (control_.wants_flush() && Clock::now() < give_up) {
    std::vector<pollfd> fds;
    control_.add_descriptors(fds);
    poll_or_pause(fds, 50);
    control_.handle_descriptors(fds.data(), fds.size());
  }
}

}  // namespace

int run_machine(const MachinePlan& plan, JobControl& control, int lifeline) {
  return JobRunner(plan, control, lifeline).run();
}

}  // namespace accelerate::launch
