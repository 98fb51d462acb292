// Which cores belong to which worker of a machine.
#pragma once

#include <sched.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace accelerate::launch {

struct Core {
  int cpu = 0;   // the kernel's number of a logical processor
  int node = 0;  // the NUMA node that it belongs to
  int core = 0;  // logical processors with the same core (and package) share their execution units
  int package = 0;
};

// The logical processors this process may run on, as the kernel describes them under `system`. None
// if the kernel does not tell.
std::vector<Core> allowed_cores(const std::filesystem::path& system = "/sys/devices/system");

// The NUMA nodes of the GPUs in the order of their PCI addresses; -1: not told. None without GPUs.
std::vector<int> gpu_nodes(const std::filesystem::path& driver = "/proc/driver/nvidia/gpus",
                           const std::filesystem::path& pci = "/sys/bus/pci/devices");

// The nodes of those GPUs of `nodes` that CUDA_VISIBLE_DEVICES lets a process see, in its order:
// all if it is unset. None if it names GPUs by other things than numbers. A pure function.
std::vector<int> nodes_of_visible(const std::vector<int>& nodes,
                                  const std::optional<std::string>& cuda_visible_devices);

// A set of as many elements as the highest of `cpus` needs; together they are one set for the
// kernel: CPU_ISSET_S(cpu, set.size() * sizeof(cpu_set_t), set.data()).
std::vector<cpu_set_t> processor_set(const std::vector<int>& cpus);

// The logical processors of each of `workers` workers: equal runs of neighbours, in the order of
// NUMA nodes, packages and cores, disjoint where there are enough of them.
//
// `preferred_nodes` has the node for each worker, or is empty: then they are spread over all.
// A worker whose node has no allowed core gets its share of all of them. A pure function;
// every share holds at least one processor. `cores` must not be empty.
std::vector<std::vector<int>> share_cores(std::vector<Core> cores, int workers,
                                          const std::vector<int>& preferred_nodes);

}  // namespace accelerate::launch
