#include "notebook/worker_variables.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "base/environment.h"
#include "launch/plan/launch_plan.h"
#include "launch/plan/machine.h"
#include "launch/plan/worker_environment.h"

namespace accelerate::notebook {
namespace {

constexpr int kAnyPort = 29500;  // one process meets nobody

}  // namespace

std::vector<std::string> worker_variables(const NotebookOptions& options, int num_processes,
                                          int port, int local_rank, int attempt) {
  launch::LaunchPlan plan;
  plan.num_machines = options.num_nodes;
  plan.machine_rank = options.node_rank;
  plan.num_processes = options.num_nodes * num_processes;
  plan.main_address = options.master_addr;
  plan.main_port = port;
  plan.max_restarts = options.max_restarts;
  plan.use_cpu = options.cpu;
  if (options.mixed_precision) plan.mixed_precision = std::string(options.mixed_precision->name());
  plan.num_cpu_threads_per_process = options.num_cpu_threads_per_process;
  // The number of the attempt tells its ranks from late ones of the attempt before.
  return launch::worker_environment(
      plan, local_rank,
      {.inherited = launch::current_environment(), .cores = launch::available_cores()},
      {.restarts = attempt});
}

int threads_of(const std::vector<std::string>& environment) {
  constexpr std::string_view kName = "OMP_NUM_THREADS=";
  for (const std::string& variable : environment) {
    if (!variable.starts_with(kName)) continue;
    int threads = 1;
    std::from_chars(variable.data() + kName.size(), variable.data() + variable.size(), threads);
    return std::max(1, threads);
  }
  return 1;
}

VariablesInPlace::VariablesInPlace(const NotebookOptions& options, int attempt) {
  if (options.mixed_precision) {
    set("ACCELERATE_MIXED_PRECISION", std::string(options.mixed_precision->name()));
  }
  if (options.cpu) set("ACCELERATE_USE_CPU", "true");
  if (options.num_cpu_threads_per_process) {
    set("OMP_NUM_THREADS", std::to_string(*options.num_cpu_threads_per_process));
    threads_before_ = at::get_num_threads();
    at::set_num_threads(*options.num_cpu_threads_per_process);
  }
  if (options.max_restarts == 0) return;
  // Restarts are counted for ranks alone.
  for (const char* name : {"RANK", "LOCAL_RANK"}) set(name, "0");
  for (const char* name : {"WORLD_SIZE", "LOCAL_WORLD_SIZE"}) set(name, "1");
  set("MASTER_ADDR", options.master_addr);
  set("MASTER_PORT", std::to_string(options.use_port.value_or(kAnyPort)));
  set("TORCHELASTIC_RESTART_COUNT", std::to_string(attempt));
  set("TORCHELASTIC_MAX_RESTARTS", std::to_string(options.max_restarts));
}

VariablesInPlace::~VariablesInPlace() {
  if (threads_before_) at::set_num_threads(*threads_before_);
  for (const auto& [name, value] : before_) {
    if (value) {
      setenv(name.c_str(), value->c_str(), 1);
    } else {
      unsetenv(name.c_str());
    }
  }
}

void VariablesInPlace::set(const char* name, const std::string& value) {
  before_.emplace_back(name, environment_variable(name));
  setenv(name, value.c_str(), 1);
}

}  // namespace accelerate::notebook
