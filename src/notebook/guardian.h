// The process between the caller and its workers.
//
// Everything that is started below it belongs to the workers, so it can end all of it: also what
// has left its worker's process group, and whatever else the caller's process starts meanwhile is
// not touched. The kernel lets it know if the caller dies.
#pragma once

#include <chrono>
#include <vector>

#include "notebook/forked_worker.h"

namespace accelerate::notebook {

// How a worker ended.
struct ForkedEnd {
  int rank = 0;  // among all ranks of the job
  // As waitpid() gives it; nothing if its guardian was killed.
  std::optional<int> wait_status{};
  std::optional<WorkerReport> report{};
  bool stopped = false;  // it was told to end, because another one had failed

  bool succeeded() const { return report && report->kind == WorkerReport::Kind::kResult; }
};

// Forks the guardian, which forks a worker for each of `starts`, and blocks until all of them have
// ended and nothing that they started is left. Once one has failed, the others are told to end and,
// after `grace`, killed. Returns how each ended, in their order. Throws CommError if the system has
// no room for another process.
std::vector<ForkedEnd> run_guarded(const std::vector<ForkedStart>& starts,
                                   std::chrono::milliseconds grace);

}  // namespace accelerate::notebook
