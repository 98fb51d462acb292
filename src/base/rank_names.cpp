#include "base/rank_names.h"

#include <utility>

namespace accelerate {
namespace {

// srun --mpi=pmi2 gives its tasks PMI's rank and size and nothing of PMI about machines. Where PMI
// does know the place on the machine, mpirun started this process, perhaps through srun, and the
// step describes mpirun's helpers.
bool pmi_is_of_srun(const VariableLookup& lookup) {
  return is_in_slurm_step(lookup) && variable_text(lookup, kSlurmNames.rank) &&
         !variable_text(lookup, kPmiNames.local_rank);
}

}  // namespace

std::optional<std::string> variable_text(const VariableLookup& lookup, const char* name) {
  if (name == nullptr) return std::nullopt;
  auto text = lookup(name);
  return text && !text->empty() ? std::move(text) : std::nullopt;
}

bool is_in_slurm_step(const VariableLookup& lookup) {
  return variable_text(lookup, "SLURM_STEP_ID").has_value();
}

std::vector<const RankNames*> rank_families(const VariableLookup& lookup) {
  std::vector<const RankNames*> families = {&kTorchrunNames};
  for (const RankNames* family : kMpiNames) {
    if (family == &kPmiNames && pmi_is_of_srun(lookup)) continue;
    families.push_back(family);
  }
  if (is_in_slurm_step(lookup)) families.push_back(&kSlurmNames);
  return families;
}

}  // namespace accelerate
