#include "launch/plan/core_shares.h"

#include <sched.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <tuple>

#include "launch/plan/folder_entries.h"

namespace accelerate::launch {
namespace {

namespace fs = std::filesystem;

std::optional<int> number_in(const fs::path& file) {
  std::ifstream stream(file);
  int value = 0;
  return stream >> value ? std::optional(value) : std::nullopt;
}

// The N of an entry "nodeN" in `folder`, where the kernel links a processor to its node; 0 if none.
int node_of(const fs::path& folder) {
  for (const fs::path& entry : folder_entries(folder)) {
    const std::string name = entry.filename().string();
    if (name.size() > 4 && name.starts_with("node") && std::isdigit(name[4])) {
      return std::stoi(name.substr(4));
    }
  }
  return 0;
}

// Cuts `cores` into `parts` runs whose lengths differ by one at most; fewer cores than parts: some
// share one.
std::vector<std::vector<int>> cut(const std::vector<Core>& cores, size_t parts) {
  std::vector<std::vector<int>> runs(parts);
  for (size_t part = 0; part < parts; ++part) {
    const size_t begin = part * cores.size() / parts;
    const size_t end = std::max(begin + 1, (part + 1) * cores.size() / parts);
    for (size_t i = begin; i < end; ++i) runs[part].push_back(cores[i].cpu);
  }
  return runs;
}

}  // namespace

std::vector<Core> allowed_cores(const fs::path& system) {
  // The kernel refuses a set that is smaller than its own.
  constexpr size_t kMaxSets = 1024;
  std::vector<cpu_set_t> set(1);
  while (sched_getaffinity(0, set.size() * sizeof(cpu_set_t), set.data()) != 0) {
    if (errno != EINVAL || set.size() >= kMaxSets) return {};
    set.resize(2 * set.size());
  }
  std::vector<Core> cores;
  for (int cpu = 0; cpu < static_cast<int>(set.size()) * CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET_S(static_cast<size_t>(cpu), set.size() * sizeof(cpu_set_t), set.data()))
      continue;
    const fs::path folder = system / "cpu" / ("cpu" + std::to_string(cpu));
    cores.push_back({.cpu = cpu,
                     .node = node_of(folder),
                     .core = number_in(folder / "topology/core_id").value_or(cpu),
                     .package = number_in(folder / "topology/physical_package_id").value_or(0)});
  }
  return cores;
}

std::vector<int> gpu_nodes(const fs::path& driver, const fs::path& pci) {
  std::vector<fs::path> addresses = folder_entries(driver);
  std::sort(addresses.begin(), addresses.end());
  std::vector<int> nodes;
  for (const fs::path& address : addresses) {
    nodes.push_back(number_in(pci / address.filename() / "numa_node").value_or(-1));
  }
  return nodes;
}

std::vector<int> nodes_of_visible(const std::vector<int>& nodes,
                                  const std::optional<std::string>& cuda_visible_devices) {
  if (!cuda_visible_devices) return nodes;
  std::vector<int> visible;
  std::istringstream list(*cuda_visible_devices);
  for (std::string item; std::getline(list, item, ',');) {
    int number = 0;
    const auto [end, error] = std::from_chars(item.data(), item.data() + item.size(), number);
    if (error != std::errc() || end != item.data() + item.size()) return {};
    // As CUDA does: what comes after one that is not there is not seen.
    if (number < 0 || number >= static_cast<int>(nodes.size())) break;
    visible.push_back(nodes[static_cast<size_t>(number)]);
  }
  return visible;
}

std::vector<cpu_set_t> processor_set(const std::vector<int>& cpus) {
  const int highest = cpus.empty() ? 0 : *std::max_element(cpus.begin(), cpus.end());
  std::vector<cpu_set_t> set(static_cast<size_t>(highest / CPU_SETSIZE + 1));
  const size_t bytes = set.size() * sizeof(cpu_set_t);
  CPU_ZERO_S(bytes, set.data());
  for (const int cpu : cpus) CPU_SET_S(static_cast<size_t>(cpu), bytes, set.data());
  return set;
}

std::vector<std::vector<int>> share_cores(std::vector<Core> cores, int workers,
                                          const std::vector<int>& preferred_nodes) {
  std::sort(cores.begin(), cores.end(), [](const Core& left, const Core& right) {
    return std::tie(left.node, left.package, left.core, left.cpu) <
           std::tie(right.node, right.package, right.core, right.cpu);
  });
  if (preferred_nodes.empty()) return cut(cores, static_cast<size_t>(workers));

  std::map<int, std::vector<Core>> of_node;
  for (const Core& core : cores) of_node[core.node].push_back(core);
  std::map<int, std::vector<size_t>> workers_of_node;
  for (size_t worker = 0; worker < static_cast<size_t>(workers); ++worker) {
    const int node = preferred_nodes[worker % preferred_nodes.size()];
    workers_of_node[of_node.count(node) != 0 ? node : -1].push_back(worker);
  }
  std::vector<std::vector<int>> shares(static_cast<size_t>(workers));
  for (const auto& [node, members] : workers_of_node) {
    auto runs = cut(node < 0 ? cores : of_node[node], members.size());
    for (size_t i = 0; i < members.size(); ++i) shares[members[i]] = std::move(runs[i]);
  }
  return shares;
}

}  // namespace accelerate::launch
