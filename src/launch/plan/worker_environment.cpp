#include "launch/plan/worker_environment.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>
#include <string_view>

#include "base/environment.h"
#include "base/nccl_variables.h"
#include "run_record/record_format.h"

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

std::vector<std::string> environment_lines(const std::map<std::string, std::string>& variables) {
  std::vector<std::string> environment;
  environment.reserve(variables.size());
  for (const auto& [name, value] : variables) environment.push_back(name + "=" + value);
  return environment;
}

std::optional<std::string> value_in(const std::map<std::string, std::string>& variables,
                                    const char* name) {
  const auto found = variables.find(name);
  return found == variables.end() ? std::nullopt : std::optional(found->second);
}

// A worker may be a Python program, which does not know how to share a GPU.
void let_gpus_be_shared(std::map<std::string, std::string>& variables, int rank, bool one_machine) {
  const auto lookup = [&](const char* name) { return value_in(variables, name); };
  const std::string wanted = lookup(kShareGpusVariable).value_or("");
  if (wanted.empty() || !parse_flag(kShareGpusVariable, wanted)) return;
  for (auto& [name, value] : shared_gpu_variables(lookup, rank, one_machine)) {
    variables[name] = value;
  }
}

}  // namespace

bool is_foreign_rank_variable(const std::string& name) {
  return std::any_of(kForeignPrefixes.begin(), kForeignPrefixes.end(),
                     [&](std::string_view prefix) { return name.starts_with(prefix); }) ||
         std::find(kForeignNames.begin(), kForeignNames.end(), name) != kForeignNames.end();
}

std::map<std::string, std::string> setting_variables(const LaunchPlan& plan) {
  std::map<std::string, std::string> variables;
  if (plan.use_cpu) variables["ACCELERATE_USE_CPU"] = "true";
  if (plan.mixed_precision) variables["ACCELERATE_MIXED_PRECISION"] = *plan.mixed_precision;
  if (plan.gpu_ids && *plan.gpu_ids != "all") variables["CUDA_VISIBLE_DEVICES"] = *plan.gpu_ids;
  if (plan.num_cpu_threads_per_process) {
    variables["OMP_NUM_THREADS"] = std::to_string(*plan.num_cpu_threads_per_process);
  }
  if (!plan.run_dir.empty()) variables[run_record::kFolderVariable] = plan.run_dir.string();
  for (const auto& [name, value] : plan.variables) variables[name] = value;
  return variables;
}

std::vector<std::string> worker_environment(const LaunchPlan& plan, int local_rank,
                                            const WorkerContext& context, const Attempt& attempt) {
  std::map<std::string, std::string> variables;
  for (const std::string& variable : context.inherited) {
    const size_t equals = variable.find('=');
    if (equals == std::string::npos) continue;
    std::string name = variable.substr(0, equals);
    if (!is_foreign_rank_variable(name)) variables[name] = variable.substr(equals + 1);
  }
  for (auto& [name, value] : setting_variables(plan)) variables[name] = value;

  const int local_size = plan.processes_per_machine();
  const int rank = plan.machine_rank * local_size + local_rank;
  variables["RANK"] = std::to_string(rank);
  variables["LOCAL_RANK"] = std::to_string(local_rank);
  variables["WORLD_SIZE"] = std::to_string(plan.num_processes);
  variables["LOCAL_WORLD_SIZE"] = std::to_string(local_size);
  variables["NODE_RANK"] = variables["GROUP_RANK"] = std::to_string(plan.machine_rank);
  variables["GROUP_WORLD_SIZE"] = std::to_string(plan.num_machines);
  const std::string address =
      attempt.main_address.empty() ? plan.main_address : attempt.main_address;
  variables["MASTER_ADDR"] = address.empty() ? "127.0.0.1" : address;
  variables["MASTER_PORT"] =
      std::to_string(attempt.main_port == 0 ? plan.main_port : attempt.main_port);
  const std::string run_id = attempt.run_id.empty() ? plan.run_id : attempt.run_id;
  variables["TORCHELASTIC_RUN_ID"] = run_id.empty() ? "none" : run_id;
  variables["TORCHELASTIC_RESTART_COUNT"] = std::to_string(attempt.restarts);
  variables["TORCHELASTIC_MAX_RESTARTS"] = std::to_string(plan.max_restarts);
  variables["TORCHELASTIC_USE_AGENT_STORE"] = "False";

  if (plan.launcher == LauncherKind::kMpirun) {
    // mpirun hands its environment down, and gives out the ranks itself.
    for (const char* name : {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK",
                             "GROUP_RANK", "GROUP_WORLD_SIZE"}) {
      variables.erase(name);
    }
  }
  if (plan.launcher == LauncherKind::kLocal) {
    let_gpus_be_shared(variables, rank, plan.num_machines == 1);
  }
  // Ranks behind mpirun, srun and ssh share the cores of their machines, not ours.
  if (plan.launcher != LauncherKind::kLocal) return environment_lines(variables);
  const int share = std::max(1, context.cores / local_size);
  variables.try_emplace("OMP_NUM_THREADS", std::to_string(share));
  return environment_lines(variables);
}

std::vector<std::string> current_environment() {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable)
    variables.emplace_back(*variable);
  return variables;
}

}  // namespace accelerate::launch
