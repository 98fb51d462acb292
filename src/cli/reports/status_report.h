// What accelerate status prints.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "launch/remote/job_inquiry.h"

namespace accelerate::cli {

// One job and what came of asking it.
struct JobStatus {
  launch::StoreAddress store{};
  launch::JobAnswer answer{};
  std::string problem{};      // why it could not be asked; "" if it was
  std::map<int, int> pids{};  // of its ranks on this machine, as far as they are known
};

// Whether all ranks answered that have not left.
bool has_full_answer(const JobStatus& job);

// A line for each rank: what it waits for and since when, or what it did last; then which ranks the
// others wait for. With the last `log_entries` of each rank's log.
std::string status_text(const std::vector<JobStatus>& jobs, size_t log_entries);
// The same for programs; the keys are in docs/launching.md.
std::string status_json(const std::vector<JobStatus>& jobs, size_t log_entries);

}  // namespace accelerate::cli
