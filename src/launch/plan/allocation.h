// What a scheduler around this process says of the job.
#pragma once

#include <string>

namespace accelerate::launch {

// What the scheduler around this process says of the job; all zero or "" where there is none.
struct Allocation {
  int num_machines = 0;             // 0: this process runs in no allocation
  int machine_rank = 0;             // which of them this is
  int num_processes = 0;            // workers that the scheduler was asked for; 0: it was not
  std::string main_address{};       // the first machine
  int main_port = 0;                // drawn from the number of the job: the same on all machines
  bool one_task_a_machine = false;  // this process was started on every machine (by srun)
  std::string run_id{};
};

// Reads SLURM's variables. Throws ConfigError if srun started several launchers on one machine.
//
// How a command line uses it, for what the user left open: inside an allocation of several machines
// LauncherKind::kSlurm if !one_task_a_machine, else kLocal with these values.
Allocation find_allocation();

}  // namespace accelerate::launch
