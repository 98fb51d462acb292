// From what a user asked for to a job with nothing left open.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "launch/plan/hostfile.h"
#include "launch/plan/launch_plan.h"

namespace accelerate::launch {

// How many workers there are, and on how many machines.
struct Shares {
  int processes = 1;
  int machines = 1;

  int of_machine() const { return processes / machines; }
};

// Throws ConfigError unless every machine runs the same number of workers, at least one, and
// `machine_rank` is one of them.
void require_shares(const Shares& shares, int machine_rank);

// A plan in which numbers, addresses and names are decided.
struct JobPlan : LaunchPlan {
  std::vector<Host> hosts{};        // of its host file, those that take part
  bool has_made_up_run_id = false;  // the next run has another
  bool has_drawn_port = false;      // the user named none
};

// Decides, one after the other, which machines take part, how the workers are shared out among
// them, where they meet and what the job is called. Reads the host file; does nothing else.
// Throws ConfigError for what does not go together.
JobPlan resolve(const LaunchPlan& request);

// Where the output of the ranks goes.
struct LogPlace {
  std::filesystem::path folder{};    // "": nowhere
  int run = 1;                       // see LaunchPlan::log_run
  std::vector<std::string> notes{};  // for the user, a sentence each
};

// The folder that `plan` names. Where streams are shown in part and none is named, makes one, since
// they must go somewhere whole; throws ConfigError if that cannot be.
//
// Output of an earlier run is not replaced: if a rank of this job has files in the folder, the
// ranks write to a new folder inside it. A launcher that starts others looks for the files of all
// ranks, on the disks that it sees, and passes the folder on; every launcher of a machine, also one
// that was started by another, looks for those of its own ranks on its own disks.
LogPlace place_of_logs(const LaunchPlan& plan);

}  // namespace accelerate::launch
