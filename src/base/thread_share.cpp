#include "base/thread_share.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>

#include "base/environment.h"

namespace accelerate {

std::optional<int> thread_share(const MachineShare& machine) {
  const bool has_own_cores = machine.allowed_cores < machine.all_cores;
  if (machine.is_decided || machine.local_ranks <= 1 || has_own_cores) return std::nullopt;
  return std::max(1, machine.allowed_cores / machine.local_ranks);
}

std::optional<int> own_thread_share(int local_ranks) {
  const auto is_set = [](const char* name) {
    return !environment_variable(name).value_or("").empty();
  };
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  const auto cores = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  const bool is_known = sched_getaffinity(0, sizeof allowed, &allowed) == 0;
  return thread_share({.local_ranks = local_ranks,
                       .allowed_cores = is_known ? CPU_COUNT(&allowed) : cores,
                       .all_cores = cores,
                       .is_decided = is_set("OMP_NUM_THREADS") || is_set("MKL_NUM_THREADS")});
}

}  // namespace accelerate
