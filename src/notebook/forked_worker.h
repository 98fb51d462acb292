// One worker: a forked copy of this process that runs a function and ends.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "accelerate/notebook.h"
#include "notebook/worker_report.h"

namespace accelerate::notebook {

// What a worker is to do. `body` and `report` must outlive it.
struct ForkedStart {
  int rank;  // among all ranks of the job
  std::vector<std::string> environment;
  const detail::WorkerBody& body;
  const ReportFile& report;
};

// With this status a worker ends whose function is over, but whose report could not be written.
constexpr int kReportIsLost = 113;

// Writes out what is in the buffers of standard output: else a forked process would print it again.
void flush_output();

// Forks in its constructor; kills the worker, and its process group, if it still runs when this
// object goes. The kernel kills it too if this process dies first. Used by one thread, of a process
// that does not ignore SIGCHLD.
class ForkedWorker {
 public:
  // Throws CommError if the system has no room for another process.
  explicit ForkedWorker(const ForkedStart& start);
  ~ForkedWorker();
  ForkedWorker(const ForkedWorker&) = delete;
  ForkedWorker& operator=(const ForkedWorker&) = delete;

  pid_t pid() const { return pid_; }
  bool has_ended() const { return wait_status_.has_value(); }
  // Whether its function returned. Only after collect().
  bool has_succeeded() const { return report_.holds_result(); }
  // Whether its function ended because the connection to another worker broke. Only after
  // collect().
  bool only_lost_a_peer() const;
  bool was_stopped() const { return stopped_; }
  // As waitpid() gives it. Only after collect().
  int wait_status() const { return *wait_status_; }

  // Sends `signal` to the worker and its process group, if it has not ended.
  void stop(int signal);

  // When it is a zombie: kills what the worker left in its group and takes its status.
  void collect();

 private:
  [[noreturn]] static void be_worker(const ForkedStart& start, const std::vector<char*>& variables,
                                     pid_t parent) noexcept;

  const ReportFile& report_;
  pid_t pid_ = -1;
  bool stopped_ = false;
  std::optional<int> wait_status_;
};

}  // namespace accelerate::notebook
