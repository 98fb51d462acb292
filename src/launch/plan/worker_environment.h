// Which variables a worker sees.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "launch/plan/launch_plan.h"

namespace accelerate::launch {

// What the launcher knows of this machine when it starts workers.
struct WorkerContext {
  std::vector<std::string> inherited{};  // the launcher's own environment as NAME=value
  int cores = 1;                         // shared out as OMP_NUM_THREADS
};

// One try of a job: all its workers, on all machines, see the same.
struct Attempt {
  int restarts = 0;            // how many there were before
  std::string main_address{};  // where rank 0 serves the rendezvous; "": as in the plan
  int main_port = 0;           // 0: as in the plan
  std::string run_id{};        // "": as in the plan
};

// The environment of worker `local_rank` of this machine, as NAME=value in no particular order: the
// inherited one without the ranks of other launchers and schedulers, plus torchrun's names. A pure
// function.
std::vector<std::string> worker_environment(const LaunchPlan& plan, int local_rank,
                                            const WorkerContext& context,
                                            const Attempt& attempt = {});

// The variables of `plan` that do not depend on the rank: settings, not places.
std::map<std::string, std::string> setting_variables(const LaunchPlan& plan);

// Whether `name` tells a process its rank or world size in another launcher's words. Such a
// variable could contradict ours: workers do not see it.
bool is_foreign_rank_variable(const std::string& name);

// The environment of this process as NAME=value.
std::vector<std::string> current_environment();

}  // namespace accelerate::launch
