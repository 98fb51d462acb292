// One worker: a forked copy of this process that runs a function and ends.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "accelerate/notebook.h"
#include "inside/worker_report.h"
#include "launch/unique_fd.h"

namespace accelerate::inside {

// How a worker ended.
struct WorkerEnd {
  int rank = 0;  // among all ranks of the job
  // As waitpid() gives it; nothing where the program took it before us (SIGCHLD is ignored).
  std::optional<int> wait_status{};
  std::optional<WorkerReport> report{};
  bool stopped = false;  // it was told to end, because another one had failed

  bool succeeded() const { return report && report->kind == WorkerReport::Kind::kResult; }
};

// Forks in its constructor; kills the worker, and what it started, if it still runs when this
// object goes. The kernel kills it too if this process dies first. Used by one thread.
class ForkedWorker {
 public:
  struct Start {
    int rank;
    std::vector<std::string> environment;
    const detail::WorkerBody& body;
  };

  // Throws CommError if the system has no room for another process.
  explicit ForkedWorker(const Start& start);
  ~ForkedWorker();
  ForkedWorker(const ForkedWorker&) = delete;
  ForkedWorker& operator=(const ForkedWorker&) = delete;

  // Becomes readable (end of file) when the worker has ended.
  int life_fd() const { return life_.get(); }
  bool has_ended() const { return end_.has_value(); }

  // Sends `signal` to the worker and its process group.
  void stop(int signal);

  // After life_fd() became readable: kills what the worker left in its group and takes its status.
  void collect();
  // Only after collect().
  const WorkerEnd& end() const { return *end_; }

 private:
  [[noreturn]] void be_worker(const Start& start, const std::vector<char*>& variables,
                              pid_t caller) const;

  int rank_;
  ReportFile report_;
  launch::UniqueFd life_;  // the other end is the worker's, for as long as it lives
  pid_t pid_ = -1;
  bool stopped_ = false;
  std::optional<WorkerEnd> end_;
};

}  // namespace accelerate::inside
