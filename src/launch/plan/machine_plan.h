// What the launcher of one machine does. Made once, then only read.
#pragma once

#include <string>
#include <vector>

#include "launch/plan/launch_outcome.h"
#include "launch/plan/launch_plan.h"

namespace accelerate::launch {

// The job as this launcher runs it. Where mpirun, srun or ssh start the ranks, its workers are
// those programs, and what it leaves to the launchers behind them is empty.
struct MachinePlan : LaunchPlan {
  std::string workers = kRanks;  // what they are called in reports: rank, or the program
  // For ssh, and for srun where a command line has no room for the plan: what each worker runs,
  // instead of `command`, and what it reads first.
  std::vector<std::vector<std::string>> programs{};
  std::vector<std::string> inputs{};
  bool signals_follow_inputs = true;  // over the same pipe, as ssh needs it; false: it ends there
  std::vector<std::string> led_to{};  // the machine that each of them is for
  // The worker is an mpirun that grants its ranks no time to stop: a stop signal goes to them, its
  // children, and it ends after them.
  bool signals_go_to_children = false;
  // This launcher was started by another, which shows the output of all machines in one place.
  bool is_agent = false;

  // What this process executes, each once.
  std::vector<std::vector<std::string>> commands() const {
    if (!programs.empty()) return programs;
    return {command};
  }
};

}  // namespace accelerate::launch
