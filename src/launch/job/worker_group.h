// The workers of one attempt on this machine.
#pragma once

#include <poll.h>

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launch/job/job_guard.h"
#include "launch/job/worker_process.h"
#include "launch/output/worker_output.h"
#include "launch/plan/launch_outcome.h"
#include "launch/plan/machine_plan.h"
#include "launch/plan/worker_environment.h"

namespace accelerate::launch {

// What workers of all attempts share. The references outlive the group.
struct GroupContext {
  OutputSinks& sinks;
  JobGuard& guard;
  const sigset_t& signal_mask;  // workers start with it
};

// Starts the workers, relays their output, stops them when one fails. Driven by an event loop: it
// never blocks but for the moment in which the programs begin. Workers that still run are killed
// when this object goes. Used by one thread.
class WorkerGroup {
 public:
  enum class Audience { kAll, kOtherGroups };

  // Throws ProgramError if the program cannot be executed, CommError if the system refuses
  // processes or descriptors, ConfigError if a log file cannot be written; no worker runs then.
  WorkerGroup(const MachinePlan& plan, const Attempt& attempt, const GroupContext& context);
  WorkerGroup(const WorkerGroup&) = delete;
  WorkerGroup& operator=(const WorkerGroup&) = delete;
  ~WorkerGroup();

  // The event loop polls what this adds and hands it back.
  void add_descriptors(std::vector<pollfd>& fds) const;
  void handle_descriptors(const pollfd* fds, size_t count);
  // Stops the others if the cause of a failure has not shown, kills what has had its time to stop.
  void handle_time();
  std::optional<std::chrono::steady_clock::time_point> deadline() const;

  // The child `pid`, a zombie, is taken if it is one of the workers.
  bool reap(pid_t pid);
  // Asks the others to stop if one has failed; some seconds later if it has only lost another,
  // which is about to say why. Call it when all that had ended were reaped: which of them was
  // first, the kernel does not tell.
  void stop_after_failure();

  // Asks all workers to stop, by `signal`, and kills them after `grace`. Only the first call
  // counts.
  void stop(int signal, std::chrono::milliseconds grace, Audience audience);
  void kill_all();
  bool is_stopping() const { return state_ != State::kRunning; }

  // From now on a worker that ends did what it was told to.
  void expect_stop() { stop_was_ordered_ = true; }

  void send(int signal, Audience audience);
  void delay_kill(std::chrono::steady_clock::duration by) { kill_at_ += by; }
  void copy_terminal_size();
  // The reader of one of our own streams has gone away: workers are told by SIGPIPE.
  void drop_streams_without_reader();

  std::vector<std::pair<int, pid_t>> pids() const;  // by rank
  // The newest lines of each worker that runs, by rank.
  std::vector<std::pair<int, std::deque<std::string>>> last_lines() const;
  bool all_ended() const;
  const std::vector<WorkerEnd>& ends() const { return ends_; }
  std::chrono::milliseconds grace() const { return grace_; }  // what the killed ones were given

 private:
  enum class State { kRunning, kStopping, kKilling };
  struct Worker;

  Worker start_worker(int local_rank, const WorkerContext& context, int null_fd);
  const std::vector<std::string>& command_of(int local_rank) const;
  std::vector<cpu_set_t> cores_of(int local_rank) const;
  void record_end(Worker& worker);
  void say_some(Worker& worker);
  WorkerFate fate_of(const Worker& worker, int wait_status) const;

  const MachinePlan& plan_;
  const Attempt attempt_;
  const GroupContext context_;
  const std::string host_;
  std::vector<std::vector<int>> core_shares_;  // by local rank; empty: no binding
  std::vector<Worker> workers_;
  const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  State state_ = State::kRunning;
  bool stop_was_ordered_ = false;  // by a signal, which workers may answer in their own way
  // While running: when the others are stopped whose failure is a consequence of one to come.
  std::optional<std::chrono::steady_clock::time_point> stop_at_{};
  std::chrono::steady_clock::time_point stop_began_;
  std::chrono::steady_clock::time_point kill_at_;
  std::chrono::milliseconds grace_{0};
  std::vector<WorkerEnd> ends_;  // in the order in which they ended
};

}  // namespace accelerate::launch
