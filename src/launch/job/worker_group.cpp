#include "launch/job/worker_group.h"

#include <fcntl.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "accelerate/errors.h"
#include "base/error_channel.h"
#include "base/time_to_name_the_cause.h"
#include "launch/output/failure_report.h"
#include "launch/plan/core_shares.h"
#include "launch/plan/machine.h"

namespace accelerate::launch {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr StreamKind kStreams[] = {StreamKind::kOut, StreamKind::kErr};
constexpr size_t kDescriptorsEach = std::size(kStreams) + 1;  // and what is said to it

milliseconds since(Clock::time_point moment) {
  return std::chrono::duration_cast<milliseconds>(Clock::now() - moment);
}

// Where the log files of `rank` go: those of a later attempt do not replace those of an earlier.
std::filesystem::path log_folder(const LaunchPlan& plan, const Attempt& attempt, int rank) {
  if (plan.log_dir.empty()) return {};
  std::filesystem::path folder = plan.log_dir;
  if (attempt.restarts > 0) folder /= "restart_" + std::to_string(attempt.restarts);
  return folder / ("rank_" + std::to_string(rank));
}

void add_unless_set(std::vector<std::string>& environment, const std::string& name,
                    const std::string& value) {
  const bool is_set =
      std::any_of(environment.begin(), environment.end(),
                  [&](const std::string& variable) { return variable.starts_with(name + "="); });
  if (!is_set) environment.push_back(name + "=" + value);
}

struct Pipe {
  UniqueFd read_end;
  UniqueFd write_end;
};

Pipe open_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    throw CommError({.what = "cannot start a worker: " + std::string(std::strerror(errno)),
                     .hint = "raise the limit on open files (ulimit -n)"});
  }
  fcntl(ends[1], F_SETFL, O_NONBLOCK);
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

// CUDA_VISIBLE_DEVICES of the workers, if they have one.
std::optional<std::string> visible_devices(const LaunchPlan& plan) {
  const auto settings = setting_variables(plan);
  const auto found = settings.find("CUDA_VISIBLE_DEVICES");
  if (found != settings.end()) return found->second;
  const char* inherited = std::getenv("CUDA_VISIBLE_DEVICES");
  return inherited == nullptr ? std::nullopt : std::optional<std::string>(inherited);
}

std::vector<std::vector<int>> shares_of_plan(const LaunchPlan& plan) {
  if (!plan.cpu_affinity) return {};
  const std::vector<Core> cores = allowed_cores();
  if (cores.empty()) return {};
  std::vector<int> near_gpus;
  if (!plan.use_cpu) near_gpus = nodes_of_visible(gpu_nodes(), visible_devices(plan));
  return share_cores(cores, plan.processes_per_machine(), near_gpus);
}

}  // namespace

struct WorkerGroup::Worker {
  int rank;
  std::unique_ptr<WorkerOutput> output;
  WorkerProcess process;
  UniqueFd lifeline{};   // to a launcher on another machine: signals go this way, and its end too
  std::string unsaid{};  // what still has to go there
  bool killed = false;   // it had its time to stop
};

WorkerGroup::WorkerGroup(const MachinePlan& plan, const Attempt& attempt,
                         const GroupContext& context)
    : plan_(plan),
      attempt_(attempt),
      context_(context),
      host_(short_host_name()),
      core_shares_(shares_of_plan(plan)) {
  const UniqueFd null_fd(open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!null_fd) {
    throw CommError(
        {.what = "cannot open /dev/null: " + std::string(std::strerror(errno)),
         .hint = "give the container a /dev, or raise the limit on open files (ulimit -n)"});
  }
  const WorkerContext worker_context{.inherited = current_environment(),
                                     .cores = available_cores()};
  const int workers = plan.processes_per_machine();
  workers_.reserve(static_cast<size_t>(workers));
  for (int local_rank = 0; local_rank < workers; ++local_rank) {
    workers_.push_back(start_worker(local_rank, worker_context, null_fd.get()));
  }
  for (size_t i = 0; i < workers_.size(); ++i) {
    workers_[i].process.confirm_started(command_of(static_cast<int>(i)).front());
  }
}

const std::vector<std::string>& WorkerGroup::command_of(int local_rank) const {
  return plan_.programs.empty() ? plan_.command : plan_.programs[static_cast<size_t>(local_rank)];
}

WorkerGroup::~WorkerGroup() = default;

std::vector<cpu_set_t> WorkerGroup::cores_of(int local_rank) const {
  if (core_shares_.empty()) return {};
  return processor_set(core_shares_[static_cast<size_t>(local_rank)]);
}

WorkerGroup::Worker WorkerGroup::start_worker(int local_rank, const WorkerContext& context,
                                              int null_fd) {
  const int rank = plan_.machine_rank * plan_.processes_per_machine() + local_rank;
  const int shown = plan_.tee ? plan_.tee->streams_of(local_rank) : Tee::kOut | Tee::kErr;
  auto output = std::make_unique<WorkerOutput>(
      OutputOptions{.rank = rank,
                    .num_processes = plan_.num_processes,
                    .prefix = plan_.prefix_output,
                    .shown = {(shown & Tee::kOut) != 0, (shown & Tee::kErr) != 0},
                    .log_folder = log_folder(plan_, attempt_, rank)},
      context_.sinks);
  // Only the first process reads what the launcher could. One in another group than the terminal's
  // may not read from it, so that one stays in ours.
  Pipe lifeline = plan_.programs.empty() ? Pipe() : open_pipe();
  const bool reads_input = rank == 0 && !lifeline.read_end;
  const bool reads_terminal = reads_input && isatty(STDIN_FILENO);
  // mpirun, srun and ssh have ranks of their own to end.
  const bool is_starter = plan_.launcher != LauncherKind::kLocal;
  WorkerContext own = context;
  if (!core_shares_.empty()) {
    own.cores = static_cast<int>(core_shares_[static_cast<size_t>(local_rank)].size()) *
                plan_.processes_per_machine();
  }
  std::vector<std::string> environment = worker_environment(plan_, local_rank, own, attempt_);
  std::erase_if(environment, [](const std::string& variable) {
    return variable.starts_with(std::string(JobGuard::kMarkName) + "=") ||
           variable.starts_with(std::string(kErrorChannelVariable) + "=");
  });
  environment.push_back(context_.guard.mark());
  if (const auto folder = log_folder(plan_, attempt_, rank); !folder.empty() && !is_starter) {
    add_unless_set(environment, "ACCELERATE_COLLECTIVE_LOG_DIR", folder.string());
  }
  if (!is_starter) {
    environment.push_back(std::string(kErrorChannelVariable) + "=" +
                          std::to_string(output->error_fd()));
  }
  WorkerProcess process({.command = command_of(local_rank),
                         .environment = std::move(environment),
                         .stdin_fd = lifeline.read_end ? lifeline.read_end.get()
                                     : reads_input     ? STDIN_FILENO
                                                       : null_fd,
                         .stdout_fd = output->worker_fd(StreamKind::kOut),
                         .stderr_fd = output->worker_fd(StreamKind::kErr),
                         .error_fd = is_starter ? -1 : output->error_fd(),
                         .signal_mask = context_.signal_mask,
                         .cores = cores_of(local_rank),
                         .death_signal = is_starter ? SIGTERM : SIGKILL,
                         .own_group = !reads_terminal});
  if (process.has_own_group()) {
    context_.guard.watch(process.pid(),
                         is_starter ? JobGuard::Manner::kAskThenKill : JobGuard::Manner::kKill);
  }
  output->close_worker_fds();
  Worker worker{rank, std::move(output), std::move(process), std::move(lifeline.write_end)};
  if (!plan_.inputs.empty()) worker.unsaid = plan_.inputs[static_cast<size_t>(local_rank)];
  say_some(worker);
  return worker;
}

// What does not fit now goes when the event loop finds room; what nobody reads any more never does,
// and the end of the worker tells.
void WorkerGroup::say_some(Worker& worker) {
  while (worker.lifeline && !worker.unsaid.empty()) {
    const ssize_t count = write(worker.lifeline.get(), worker.unsaid.data(), worker.unsaid.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno != EAGAIN) worker.unsaid.clear();
    if (count <= 0) return;
    worker.unsaid.erase(0, static_cast<size_t>(count));
  }
  if (!plan_.signals_follow_inputs) worker.lifeline.reset();
}

void WorkerGroup::add_descriptors(std::vector<pollfd>& fds) const {
  for (const Worker& worker : workers_) {
    for (const StreamKind kind : kStreams) {
      const bool readable =
          worker.output->fd(kind) >= 0 && !context_.sinks[static_cast<size_t>(kind)].is_full();
      fds.push_back({readable ? worker.output->fd(kind) : -1, POLLIN, 0});
    }
    fds.push_back({worker.unsaid.empty() ? -1 : worker.lifeline.get(), POLLOUT, 0});
  }
}

void WorkerGroup::handle_descriptors(const pollfd* fds, size_t count) {
  for (size_t i = 0; i < count && i / kDescriptorsEach < workers_.size(); ++i) {
    if (fds[i].fd < 0 || fds[i].revents == 0) continue;
    Worker& worker = workers_[i / kDescriptorsEach];
    const size_t which = i % kDescriptorsEach;
    if (which < std::size(kStreams)) {
      worker.output->read(kStreams[which]);
    } else {
      say_some(worker);
    }
  }
}

bool WorkerGroup::all_ended() const { return ends_.size() == workers_.size(); }

std::optional<Clock::time_point> WorkerGroup::deadline() const {
  if (state_ == State::kRunning) return stop_at_;
  return state_ == State::kStopping && !all_ended() ? std::optional(kill_at_) : std::nullopt;
}

void WorkerGroup::handle_time() {
  if (state_ == State::kRunning && stop_at_ && Clock::now() >= *stop_at_) {
    stop(SIGTERM, plan_.failure_grace, Audience::kAll);
  }
  if (state_ == State::kStopping && Clock::now() >= kill_at_) kill_all();
}

bool WorkerGroup::reap(pid_t pid) {
  const auto worker = std::find_if(workers_.begin(), workers_.end(), [&](const Worker& each) {
    return !each.process.is_reaped() && each.process.pid() == pid;
  });
  if (worker == workers_.end()) return false;
  record_end(*worker);
  return true;
}

void WorkerGroup::record_end(Worker& worker) {
  const int status = worker.process.reap();
  context_.guard.forget(worker.process.pid());
  worker.output->finish();
  const WorkerFate fate = fate_of(worker, status);
  // No report will speak of it: something inside of the worker failed, and the worker went on.
  if (fate == WorkerFate::kSucceeded && !worker.output->error().empty()) {
    context_.sinks[1].enqueue(worker.output->error() + "\n");
  }
  ends_.push_back({.rank = worker.rank,
                   .host = host_,
                   .pid = worker.process.pid(),
                   .wait_status = status,
                   .after = since(began_),
                   .fate = fate,
                   .unasked = !is_stopping(),
                   .exception = worker.output->exception(),
                   .error = worker.output->error(),
                   .last_lines = worker.output->last_lines()});
}

void WorkerGroup::stop_after_failure() {
  const auto failed = [](const WorkerEnd& end) { return end.fate == WorkerFate::kFailed; };
  if (std::none_of(ends_.begin(), ends_.end(), failed)) return;
  const bool cause_is_known = std::any_of(ends_.begin(), ends_.end(), [&](const WorkerEnd& end) {
    return failed(end) && !only_lost_a_peer(end);
  });
  if (cause_is_known) {
    stop(SIGTERM, plan_.failure_grace, Audience::kAll);
  } else if (!stop_at_) {
    stop_at_ = Clock::now() + kTimeToNameTheCause;
  }
}

WorkerFate WorkerGroup::fate_of(const Worker& worker, int wait_status) const {
  if (WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0) {
    return is_stopping() && !stop_was_ordered_ ? WorkerFate::kStopped : WorkerFate::kSucceeded;
  }
  if (!is_stopping()) return WorkerFate::kFailed;
  if (worker.killed) return WorkerFate::kKilled;
  if (stop_was_ordered_) return WorkerFate::kStopped;
  const bool obeyed = (WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == SIGTERM) ||
                      (WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 128 + SIGTERM);
  return obeyed ? WorkerFate::kStopped : WorkerFate::kFailed;
}

void WorkerGroup::stop(int signal, milliseconds grace, Audience audience) {
  if (state_ != State::kRunning) return;
  state_ = State::kStopping;
  stop_began_ = Clock::now();
  kill_at_ = stop_began_ + grace;
  send(signal, audience);
}

void WorkerGroup::kill_all() {
  if (state_ == State::kRunning) stop_began_ = Clock::now();
  state_ = State::kKilling;
  grace_ = since(stop_began_);
  for (Worker& worker : workers_) {
    if (!worker.process.is_reaped()) worker.killed = true;
  }
  send(SIGKILL, Audience::kAll);
}

void WorkerGroup::send(int signal, Audience audience) {
  // srun takes the first SIGINT for a question, and passes SIGTERM on.
  if (plan_.launcher == LauncherKind::kSlurm && signal == SIGINT) signal = SIGTERM;
  for (Worker& worker : workers_) {
    if (audience == Audience::kOtherGroups && !worker.process.has_own_group()) continue;
    const bool is_stop = signal != SIGKILL && signal != SIGSTOP && signal != SIGCONT;
    if (is_stop && plan_.signals_go_to_children && worker.process.send_to_children(signal))
      continue;
    const bool over_lifeline =
        plan_.signals_follow_inputs && worker.lifeline && is_stop && !worker.process.is_reaped();
    if (!over_lifeline) {
      worker.process.send(signal);
      continue;
    }
    worker.unsaid += static_cast<char>(signal);
    say_some(worker);
  }
}

std::vector<std::pair<int, pid_t>> WorkerGroup::pids() const {
  std::vector<std::pair<int, pid_t>> pids;
  for (const Worker& worker : workers_) pids.emplace_back(worker.rank, worker.process.pid());
  return pids;
}

std::vector<std::pair<int, std::deque<std::string>>> WorkerGroup::last_lines() const {
  std::vector<std::pair<int, std::deque<std::string>>> all;
  for (const Worker& worker : workers_) {
    if (!worker.process.is_reaped()) all.emplace_back(worker.rank, worker.output->last_lines());
  }
  return all;
}

void WorkerGroup::copy_terminal_size() {
  for (Worker& worker : workers_) worker.output->copy_terminal_size();
}

void WorkerGroup::drop_streams_without_reader() {
  for (const StreamKind kind : kStreams) {
    if (!context_.sinks[static_cast<size_t>(kind)].is_broken()) continue;
    for (Worker& worker : workers_) worker.output->lose_reader(kind);
  }
}

}  // namespace accelerate::launch
