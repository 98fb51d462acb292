// How many threads a rank computes with where nobody says. Standard C++ alone.
#pragma once

#include <optional>

namespace accelerate {

struct MachineShare {
  int local_ranks = 1;      // on this machine
  int allowed_cores = 1;    // that this process may run on
  int all_cores = 1;        // of the machine
  bool is_decided = false;  // OMP_NUM_THREADS or MKL_NUM_THREADS says it
};

// An equal share of the cores for ranks that were started side by side (by mpirun or srun) and may
// all run everywhere; nothing where somebody decided it, where this rank is alone, or where it has
// been given cores of its own.
std::optional<int> thread_share(const MachineShare& machine);

// The same of this process.
std::optional<int> own_thread_share(int local_ranks);

}  // namespace accelerate
