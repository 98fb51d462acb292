// Under which names launchers tell a process its place. Standard headers only: whoever asks who
// this process is (the accelerator, a line of the log, the launcher) asks here.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace accelerate {

// The names under which one launcher family describes a process. nullptr: it has no such name.
struct RankNames {
  const char* source;
  const char* rank;
  const char* world_size;
  const char* local_rank;
  const char* local_world_size;  // SLURM's is a list over all nodes
  const char* node_rank;
  std::array<const char*, 2> job;  // together they tell one job from another
};

inline constexpr RankNames kTorchrunNames = {"torchrun",
                                             "RANK",
                                             "WORLD_SIZE",
                                             "LOCAL_RANK",
                                             "LOCAL_WORLD_SIZE",
                                             "NODE_RANK",
                                             {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"}};
inline constexpr RankNames kOpenMpiNames = {"Open MPI",
                                            "OMPI_COMM_WORLD_RANK",
                                            "OMPI_COMM_WORLD_SIZE",
                                            "OMPI_COMM_WORLD_LOCAL_RANK",
                                            "OMPI_COMM_WORLD_LOCAL_SIZE",
                                            nullptr,
                                            {"PMIX_NAMESPACE", nullptr}};
inline constexpr RankNames kPmiNames = {"PMI",
                                        "PMI_RANK",
                                        "PMI_SIZE",
                                        "MPI_LOCALRANKID",
                                        "MPI_LOCALNRANKS",
                                        nullptr,
                                        {"PMIX_NAMESPACE", nullptr}};
inline constexpr RankNames kMvapichNames = {"MVAPICH",
                                            "MV2_COMM_WORLD_RANK",
                                            "MV2_COMM_WORLD_SIZE",
                                            "MV2_COMM_WORLD_LOCAL_RANK",
                                            "MV2_COMM_WORLD_LOCAL_SIZE",
                                            nullptr,
                                            {"PMIX_NAMESPACE", nullptr}};
inline constexpr RankNames kSlurmNames = {"SLURM",
                                          "SLURM_PROCID",
                                          "SLURM_NTASKS",
                                          "SLURM_LOCALID",
                                          "SLURM_TASKS_PER_NODE",
                                          "SLURM_NODEID",
                                          {"SLURM_JOB_ID", "SLURM_STEP_ID"}};
inline constexpr std::array<const RankNames*, 3> kMpiNames = {&kOpenMpiNames, &kPmiNames,
                                                              &kMvapichNames};

// Looks a variable up; std::nullopt where it is not set.
using VariableLookup = std::function<std::optional<std::string>(const char* name)>;

// The variable; nothing also where it is empty or `name` is nullptr.
std::optional<std::string> variable_text(const VariableLookup& lookup, const char* name);

// Whether SLURM's names describe a task of a step. Those of a batch script describe the job.
bool is_in_slurm_step(const VariableLookup& lookup);

// The families that may describe this process, in the order in which they are asked: the first one
// whose rank is set says who it is.
std::vector<const RankNames*> rank_families(const VariableLookup& lookup);

}  // namespace accelerate
