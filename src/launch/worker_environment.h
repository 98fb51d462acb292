// Which variables a worker sees.
#pragma once

#include <string>
#include <vector>

#include "launch/launch_plan.h"

namespace accelerate::launch {

// What the launcher knows of its surroundings when it starts workers.
struct WorkerSurroundings {
  std::vector<std::string> inherited{};  // the launcher's own environment as NAME=value
  int cores = 1;                         // shared out as OMP_NUM_THREADS
};

// The environment of worker `rank` of `plan`, as NAME=value in no particular order: the inherited
// one without the ranks of other launchers and schedulers, plus torchrun's names. A pure function.
std::vector<std::string> worker_environment(const LaunchPlan& plan, int rank,
                                            const WorkerSurroundings& surroundings);

// Whether `name` tells a process its rank or world size in another launcher's words. Such a
// variable could contradict ours: workers do not see it.
bool is_foreign_rank_variable(const std::string& name);

// The environment of this process as NAME=value.
std::vector<std::string> current_environment();

}  // namespace accelerate::launch
