// Asks the ranks of a running job, from outside, what they are doing.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/rank_report.h"

namespace accelerate::launch {

// Where rank 0 of a job hosts its store.
struct StoreAddress {
  std::string host{};
  int port = 0;

  std::string text() const { return host + ":" + std::to_string(port); }
  auto operator<=>(const StoreAddress&) const = default;
};

// A job that has processes on this machine.
struct LocalJob {
  StoreAddress store{};
  std::map<int, int> pids{};  // of its ranks on this machine, by rank
};

// Those of the processes of this user on this machine whose environment names a rank, its job's
// address and more than one rank, in torchrun's words. Others' processes cannot be read, unless by
// root.
std::vector<LocalJob> find_local_jobs();

// What the kernel says a process is doing: 'T' stopped, 'R', 'S', 'D', 'Z'; 0: it is gone.
char process_state(int pid);

// What one rank said.
struct RankAnswer {
  std::optional<RankReport> report{};  // nothing: it did not answer in time
  bool has_left = false;               // its accelerator ended
};

// Ranks that met once, to train together or for saves beside the training.
struct GroupAnswer {
  int64_t index = 0;    // from 1 on, in the order in which they met
  std::string ended{};  // why nobody was asked: "the job has failed: ..."; "" if they were
  std::vector<RankAnswer> ranks{};
};

struct JobAnswer {
  std::string job{};  // its name and attempt; "" where the launcher gave none
  int world_size = 0;
  std::vector<GroupAnswer> groups{};  // at least one
};

// Attaches to the store of a job and asks the ranks of each group that is under way. Waits up to
// `patience` for their answers, which come within half a second where a rank is well; those that do
// not answer stay empty. The job goes on as if nothing had been. Throws CommError if the store
// cannot be reached, or does not belong to a program of this library.
JobAnswer ask_job(const StoreAddress& store, std::chrono::milliseconds patience);

}  // namespace accelerate::launch
