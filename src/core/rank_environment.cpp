#include <array>
#include <charconv>
#include <limits>
#include <string>
#include <vector>

#include "accelerate/errors.h"
#include "accelerate/log.h"
#include "accelerate/process_state.h"

namespace accelerate {
namespace {

// The names under which one launcher family describes a process. nullptr: it has no such name.
struct Family {
  const char* source;
  const char* rank;
  const char* world_size;
  const char* local_rank;
  const char* local_world_size;
  const char* node_rank;
};

constexpr Family kTorchrun = {"torchrun",         "RANK",     "WORLD_SIZE", "LOCAL_RANK",
                              "LOCAL_WORLD_SIZE", "NODE_RANK"};
constexpr std::array<Family, 3> kMpi = {{
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE", nullptr},
    {"PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", nullptr},
    {"MVAPICH", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK",
     "MV2_COMM_WORLD_LOCAL_SIZE", nullptr},
}};
constexpr Family kSlurm = {"SLURM",         "SLURM_PROCID", "SLURM_NTASKS",
                           "SLURM_LOCALID", nullptr,        "SLURM_NODEID"};

int to_int(const char* name, const std::string& text, int lowest, int highest) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < lowest ||
      value > highest) {
    throw ConfigError({.what = std::string(name) + "='" + text + "' is not a whole number from " +
                               std::to_string(lowest) + " to " + std::to_string(highest),
                       .where = std::string("environment variable ") + name,
                       .hint = "start the program with 'accelerate launch', or set it right"});
  }
  return value;
}

constexpr int kMost = std::numeric_limits<int>::max() - 1;

std::optional<int> number(const EnvironmentLookup& lookup, const char* name, int lowest = 0,
                          int highest = kMost) {
  if (name == nullptr) return std::nullopt;
  const auto text = lookup(name);
  if (!text || text->empty()) return std::nullopt;
  return to_int(name, *text, lowest, highest);
}

// Rank and size of `family`, or nothing if neither is set. One without the other is an error.
std::optional<std::pair<int, int>> rank_and_size(const EnvironmentLookup& lookup,
                                                 const Family& family) {
  const auto rank = number(lookup, family.rank);
  const auto size = number(lookup, family.world_size, 1);
  if (!rank && !size) return std::nullopt;
  if (!rank || !size) {
    const char* set = rank ? family.rank : family.world_size;
    const char* missing = rank ? family.world_size : family.rank;
    throw ConfigError({.what = std::string(set) + " is set but " + missing + " is not",
                       .where = "environment of the process",
                       .hint = "set both, or neither for one process"});
  }
  if (*rank >= *size) {
    throw ConfigError({.what = std::string(family.rank) + "=" + std::to_string(*rank) +
                               " is not below " + family.world_size + "=" + std::to_string(*size),
                       .where = "environment of the process",
                       .hint = "ranks count from 0"});
  }
  return std::pair{*rank, *size};
}

[[noreturn]] void throw_contradiction(const std::string& left, const std::string& right) {
  throw ConfigError(
      {.what = left + " contradicts " + right,
       .where = "environment of the process",
       .hint = "unset the variables of the launcher that did not start this process"});
}

std::string assignment(const char* name, int value) {
  return std::string(name) + "=" + std::to_string(value);
}

// Two MPI-like families that both describe this process must agree. SLURM is left out: inside a
// batch script its task variables describe the script, not the process that mpirun started in it.
void require_agreement(const EnvironmentLookup& lookup, const Family& chosen, int rank, int size) {
  for (const Family& other : kMpi) {
    if (std::string_view(other.source) == chosen.source) continue;
    const auto seen = rank_and_size(lookup, other);
    if (!seen) continue;
    if (seen->second != size) {
      throw_contradiction(assignment(chosen.world_size, size),
                          assignment(other.world_size, seen->second));
    }
    if (seen->first != rank) {
      throw_contradiction(assignment(chosen.rank, rank), assignment(other.rank, seen->first));
    }
  }
}

// "4(x2),3" -> tasks on node `node`; nothing if the text does not say.
std::optional<int> slurm_tasks_on_node(const std::string& text, int node) {
  size_t at = 0;
  int first = 0;
  while (at < text.size()) {
    size_t end = text.find(',', at);
    if (end == std::string::npos) end = text.size();
    const std::string item = text.substr(at, end - at);
    const size_t times = item.find("(x");
    int tasks = 0;
    int nodes = 1;
    const char* begin = item.data();
    const char* tasks_end = begin + (times == std::string::npos ? item.size() : times);
    if (std::from_chars(begin, tasks_end, tasks).ptr != tasks_end) return std::nullopt;
    if (times != std::string::npos) {
      std::from_chars(begin + times + 2, begin + item.size(), nodes);
    }
    if (node < first + nodes) return tasks;
    first += nodes;
    at = end + 1;
  }
  return std::nullopt;
}

// "node[07-09,12],login" -> "node07"; "gpu1" -> "gpu1".
std::string slurm_first_host(const std::string& list) {
  const size_t end = list.find_first_of(",[");
  std::string host = list.substr(0, end);
  if (end == std::string::npos || list[end] == ',') return host;
  const size_t number_end = list.find_first_of("-,]", end + 1);
  return host + list.substr(end + 1, number_end - end - 1);
}

// How many ranks share this machine where the launcher does not say: packed nodes give it away
// from the second node on; on the first one all ranks may well be here.
int guess_local_world_size(const Family& family, const RankEnvironment& result,
                           std::optional<int> node_rank) {
  const int ranks_before_this_node = result.rank - result.local_rank;
  if (ranks_before_this_node == 0) return result.world_size;
  const int nodes_before = node_rank.value_or(0);
  if (nodes_before > 0 && ranks_before_this_node > 0 &&
      ranks_before_this_node % nodes_before == 0) {
    return ranks_before_this_node / nodes_before;
  }
  throw ConfigError(
      {.what = assignment(family.local_rank, result.local_rank) + " differs from " +
               assignment(family.rank, result.rank) + ", and " +
               (family.local_world_size ? family.local_world_size : "the tasks of each node") +
               " is not set",
       .where = "environment of the process",
       .hint = "set how many ranks run on this machine"});
}

void require_below(const char* name, int value, const char* limit_name, int limit) {
  if (value < limit) return;
  throw ConfigError(
      {.what = assignment(name, value) + " is not below " + assignment(limit_name, limit),
       .where = "environment of the process",
       .hint = "local ranks count from 0 on each machine"});
}

std::optional<int> read_node_rank(const EnvironmentLookup& lookup, const Family& family) {
  const auto node_rank = number(lookup, family.node_rank);
  if (&family != &kTorchrun) return node_rank;
  const auto group_rank = number(lookup, "GROUP_RANK");
  if (node_rank && group_rank && *node_rank != *group_rank) {
    throw_contradiction(assignment("NODE_RANK", *node_rank), assignment("GROUP_RANK", *group_rank));
  }
  return node_rank ? node_rank : group_rank;
}

void read_local_place(const EnvironmentLookup& lookup, const Family& family,
                      RankEnvironment& result) {
  const auto local_rank = number(lookup, family.local_rank);
  const auto local_size = number(lookup, family.local_world_size, 1);
  if (local_size && !local_rank) {
    throw ConfigError({.what = std::string(family.local_world_size) + " is set but " +
                               family.local_rank + " is not",
                       .where = "environment of the process",
                       .hint = "set both, or neither when all ranks are on this machine"});
  }
  if (local_rank) {
    require_below(family.local_rank, *local_rank,
                  local_size ? family.local_world_size : family.world_size,
                  local_size.value_or(result.world_size));
  }
  if (local_size && *local_size > result.world_size) {
    throw_contradiction(assignment(family.local_world_size, *local_size),
                        assignment(family.world_size, result.world_size));
  }
  if (local_size && *local_size == result.world_size && *local_rank != result.rank) {
    throw_contradiction(assignment(family.local_rank, *local_rank),
                        assignment(family.rank, result.rank) + " with all ranks on this machine");
  }
  const auto node_rank = read_node_rank(lookup, family);
  // A launcher that says nothing about machines has put all ranks on this one.
  result.local_rank = local_rank.value_or(result.rank);
  result.local_world_size =
      local_size ? *local_size : guess_local_world_size(family, result, node_rank);
  result.node_rank =
      node_rank.value_or((result.rank - result.local_rank) / result.local_world_size);
}

void read_master(const EnvironmentLookup& lookup, const Family& family, RankEnvironment& result) {
  const auto address = lookup("MASTER_ADDR");
  const auto port = number(lookup, "MASTER_PORT", 1, 65535);
  const bool has_address = address && !address->empty();
  if (has_address) result.master_address = *address;
  if (port) result.master_port = static_cast<uint16_t>(*port);
  if (result.world_size == 1) return;

  if (&family == &kTorchrun && (!has_address || !port)) {
    throw ConfigError(
        {.what = assignment("WORLD_SIZE", result.world_size) + " but " +
                 (!has_address ? (!port ? "MASTER_ADDR and MASTER_PORT are" : "MASTER_ADDR is")
                               : "MASTER_PORT is") +
                 " not set",
         .where = "environment of the process",
         .hint = "start the program with 'accelerate launch', or set where rank 0 listens"});
  }
  const bool one_machine = result.local_world_size == result.world_size;
  if (has_address || one_machine) return;
  if (&family == &kSlurm) {
    if (auto nodes = lookup("SLURM_STEP_NODELIST"); nodes && !nodes->empty()) {
      result.master_address = slurm_first_host(*nodes);
      return;
    }
    if (auto nodes = lookup("SLURM_JOB_NODELIST"); nodes && !nodes->empty()) {
      result.master_address = slurm_first_host(*nodes);
      return;
    }
  }
  throw ConfigError(
      {.what = std::string(family.source) + " started " + std::to_string(result.world_size) +
               " ranks, " + std::to_string(result.local_world_size) +
               " of them on this machine, and MASTER_ADDR is not set",
       .where = "environment of the process",
       .hint = "set MASTER_ADDR to the machine of rank 0, e.g. mpirun -x MASTER_ADDR"});
}

RankEnvironment from_family(const EnvironmentLookup& lookup, const Family& family, int rank,
                            int size) {
  RankEnvironment result;
  result.source = family.source;
  result.rank = rank;
  result.world_size = size;
  read_local_place(lookup, family, result);
  read_master(lookup, family, result);
  return result;
}

// SLURM says how many tasks each node has in one variable for all nodes.
RankEnvironment from_slurm(const EnvironmentLookup& lookup, int rank, int size) {
  const auto node = number(lookup, "SLURM_NODEID").value_or(0);
  auto tasks = lookup("SLURM_STEP_TASKS_PER_NODE");
  if (!tasks || tasks->empty()) tasks = lookup("SLURM_TASKS_PER_NODE");
  std::optional<int> on_node;
  if (tasks) on_node = slurm_tasks_on_node(*tasks, node);
  const EnvironmentLookup with_local_size = [&](const char* name) -> std::optional<std::string> {
    if (std::string_view(name) == "SLURM_TASKS_PER_NODE") {
      return on_node ? std::optional(std::to_string(*on_node)) : std::nullopt;
    }
    return lookup(name);
  };
  static constexpr Family kStep = {"SLURM",         "SLURM_PROCID",         "SLURM_NTASKS",
                                   "SLURM_LOCALID", "SLURM_TASKS_PER_NODE", "SLURM_NODEID"};
  RankEnvironment result;
  result.source = kStep.source;
  result.rank = rank;
  result.world_size = size;
  read_local_place(with_local_size, kStep, result);
  // Two jobs on one node must not meet on one port, and all tasks of a job must agree on it.
  if (const auto job = number(lookup, "SLURM_JOB_ID")) {
    constexpr int kFirstPort = 20000;
    constexpr int kPorts = 10000;
    result.master_port = static_cast<uint16_t>(kFirstPort + *job % kPorts);
  }
  read_master(lookup, kSlurm, result);
  return result;
}

}  // namespace

RankEnvironment RankEnvironment::read(const EnvironmentLookup& lookup) {
  if (const auto torchrun = rank_and_size(lookup, kTorchrun)) {
    require_agreement(lookup, kTorchrun, torchrun->first, torchrun->second);
    RankEnvironment result = from_family(lookup, kTorchrun, torchrun->first, torchrun->second);
    const auto agent = lookup("TORCHELASTIC_USE_AGENT_STORE");
    result.store_is_hosted = agent && (*agent == "True" || *agent == "true" || *agent == "1");
    return result;
  }
  for (const char* name : {"LOCAL_RANK", "LOCAL_WORLD_SIZE"}) {
    if (const auto value = lookup(name); value && !value->empty()) {
      throw ConfigError({.what = std::string(name) + " is set but RANK and WORLD_SIZE are not",
                         .where = "environment of the process",
                         .hint = "set RANK and WORLD_SIZE too, or unset it for one process"});
    }
  }
  for (const Family& family : kMpi) {
    if (const auto mpi = rank_and_size(lookup, family)) {
      require_agreement(lookup, family, mpi->first, mpi->second);
      return from_family(lookup, family, mpi->first, mpi->second);
    }
  }
  if (const auto slurm = rank_and_size(lookup, kSlurm)) {
    const auto step = lookup("SLURM_STEP_ID");
    if (step && !step->empty()) return from_slurm(lookup, slurm->first, slurm->second);
    if (slurm->second > 1) {
      log(LogLevel::kWarning, "SLURM_NTASKS=" + std::to_string(slurm->second) +
                                  " but this process was not started by srun: running alone");
    }
  }
  return {};
}

}  // namespace accelerate
