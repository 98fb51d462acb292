#include "base/own_rank.h"

#include <algorithm>

#include "base/environment.h"

namespace accelerate {
namespace {

// "" where the variable is not set.
std::string value_of(const char* name) { return environment_variable(name).value_or(""); }

std::string rank_in(const char* name) {
  const std::string text = value_of(name);
  const bool is_number =
      std::all_of(text.begin(), text.end(), [](unsigned char c) { return c >= '0' && c <= '9'; });
  return is_number ? text : "";
}

// srun --mpi=pmi2 gives its tasks PMI's rank, but nothing about their place on the machine.
bool pmi_is_of_a_step() {
  return !value_of("SLURM_STEP_ID").empty() && !value_of("SLURM_PROCID").empty() &&
         value_of("MPI_LOCALRANKID").empty();
}

}  // namespace

std::string own_rank() {
  for (const char* name : {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK"}) {
    if (name == std::string("PMI_RANK") && pmi_is_of_a_step()) continue;
    std::string rank = rank_in(name);
    if (!rank.empty()) return rank;
  }
  return value_of("SLURM_STEP_ID").empty() ? "" : rank_in("SLURM_PROCID");
}

}  // namespace accelerate
