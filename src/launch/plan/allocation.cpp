#include "launch/plan/allocation.h"

#include <charconv>
#include <cstdlib>

#include "accelerate/errors.h"
#include "base/port_of_name.h"
#include "base/slurm_names.h"

namespace accelerate::launch {
namespace {

// The first of the variables that is set, or "".
std::string first_of(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const char* value = std::getenv(name);
    if (value != nullptr && *value != '\0') return value;
  }
  return "";
}

int number_of(std::initializer_list<const char*> names, int otherwise) {
  const std::string text = first_of(names);
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value >= 0 ? value : otherwise;
}

// The shells of sbatch and of an interactive salloc run in steps of their own, which SLURM numbers
// from the top (SLURM_BATCH_SCRIPT, SLURM_INTERACTIVE_STEP): nobody started a launcher by srun
// there.
bool is_special_step(const std::string& step) {
  constexpr uint64_t kFirstSpecial = 0xfffffff0;
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(step.data(), step.data() + step.size(), number);
  return error == std::errc() && end == step.data() + step.size() && number >= kFirstSpecial;
}

}  // namespace

Allocation find_allocation() {
  const std::string job = first_of({"SLURM_JOB_ID", "SLURM_JOBID"});
  if (job.empty()) return {};
  Allocation found;
  const std::string step = first_of({"SLURM_STEP_ID"});
  const bool in_step =
      !step.empty() && !is_special_step(step) && !first_of({"SLURM_PROCID"}).empty();
  found.run_id = "slurm-" + job + (in_step ? "." + step : "");
  found.main_port = port_of_name(found.run_id);
  const std::string nodes = in_step ? first_of({"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"})
                                    : first_of({"SLURM_JOB_NODELIST"});
  found.main_address = slurm_first_host(nodes);
  if (in_step) {
    found.num_machines = number_of({"SLURM_STEP_NUM_NODES", "SLURM_NNODES"}, 1);
    const int tasks = number_of({"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}, 1);
    if (tasks != found.num_machines) {
      throw ConfigError(
          {.what = "srun started " + std::to_string(tasks) + " launchers on " +
                   std::to_string(found.num_machines) + " machine(s)",
           .where = "SLURM_STEP_NUM_TASKS",
           .hint = "srun --ntasks-per-node=1 accelerate launch ..., or srun your program itself"});
    }
    found.one_task_a_machine = true;
    found.machine_rank = number_of({"SLURM_NODEID"}, 0);
  } else {
    found.num_machines = number_of({"SLURM_JOB_NUM_NODES", "SLURM_NNODES"}, 1);
    const int tasks = number_of({"SLURM_NTASKS"}, 0);
    if (tasks > found.num_machines) found.num_processes = tasks;
  }
  const int gpus = number_of({"SLURM_GPUS_ON_NODE"}, 0);
  if (gpus > 0) found.num_processes = gpus * found.num_machines;
  return found;
}

}  // namespace accelerate::launch
