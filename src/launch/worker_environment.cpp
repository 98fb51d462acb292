#include "launch/worker_environment.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>
#include <string_view>

namespace accelerate::launch {
namespace {

constexpr std::array<std::string_view, 14> kForeignPrefixes = {
    "OMPI_COMM_WORLD_",
    "PMI_",
    "PMIX_",
    "MV2_COMM_WORLD_",
    "SLURM_NTASKS",
    "SLURM_STEP",
    "TORCHELASTIC_",
    "ROLE_",
    "MPI_LOCALNRANKS",
    "MPI_LOCALRANKID",
    "PALS_",
    "JSM_NAMESPACE",
    "FLUX_TASK_",
    "GROUP_WORLD_SIZE",
};
constexpr std::array<std::string_view, 8> kForeignNames = {
    "SLURM_PROCID", "SLURM_LOCALID",  "SLURM_NODEID",         "SLURM_NPROCS",
    "SLURM_GTIDS",  "SLURM_TASK_PID", "SLURM_TASKS_PER_NODE", "OMPI_MCA_ess_base_vpid",
};

}  // namespace

bool is_foreign_rank_variable(const std::string& name) {
  return std::any_of(kForeignPrefixes.begin(), kForeignPrefixes.end(),
                     [&](std::string_view prefix) { return name.starts_with(prefix); }) ||
         std::find(kForeignNames.begin(), kForeignNames.end(), name) != kForeignNames.end();
}

std::vector<std::string> worker_environment(const LaunchPlan& plan, int rank,
                                            const WorkerSurroundings& surroundings) {
  std::map<std::string, std::string> variables;
  for (const std::string& variable : surroundings.inherited) {
    const size_t equals = variable.find('=');
    if (equals == std::string::npos) continue;
    std::string name = variable.substr(0, equals);
    if (!is_foreign_rank_variable(name)) variables[name] = variable.substr(equals + 1);
  }

  variables["RANK"] = variables["LOCAL_RANK"] = std::to_string(rank);
  variables["WORLD_SIZE"] = variables["LOCAL_WORLD_SIZE"] = std::to_string(plan.num_processes);
  variables["NODE_RANK"] = variables["GROUP_RANK"] = "0";
  variables["MASTER_ADDR"] = plan.main_address;
  variables["MASTER_PORT"] = std::to_string(plan.main_port);

  const int share = std::max(1, surroundings.cores / plan.num_processes);
  if (plan.num_cpu_threads_per_process) {
    variables["OMP_NUM_THREADS"] = std::to_string(*plan.num_cpu_threads_per_process);
  } else {
    variables.try_emplace("OMP_NUM_THREADS", std::to_string(share));
  }
  if (plan.use_cpu) variables["ACCELERATE_USE_CPU"] = "true";
  if (plan.mixed_precision) variables["ACCELERATE_MIXED_PRECISION"] = *plan.mixed_precision;

  std::vector<std::string> environment;
  environment.reserve(variables.size());
  for (const auto& [name, value] : variables) environment.push_back(name + "=" + value);
  return environment;
}

std::vector<std::string> current_environment() {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable)
    variables.emplace_back(*variable);
  return variables;
}

}  // namespace accelerate::launch
