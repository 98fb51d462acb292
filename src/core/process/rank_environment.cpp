#include <charconv>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "accelerate/errors.h"
#include "accelerate/log.h"
#include "accelerate/process_state.h"
#include "base/port_of_name.h"
#include "base/rank_names.h"
#include "base/slurm_names.h"

namespace accelerate {
namespace {

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
  const auto text = variable_text(lookup, name);
  return text ? std::optional(to_int(name, *text, lowest, highest)) : std::nullopt;
}

// Rank and size of `family`, or nothing if neither is set. One without the other is an error.
std::optional<std::pair<int, int>> rank_and_size(const EnvironmentLookup& lookup,
                                                 const RankNames& family) {
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

// The families of MPI that describe this process must agree with the chosen one and each other.
// SLURM is not asked: inside a batch script, or around the helpers of mpirun, its task variables
// describe another process than this one.
void require_agreement(const EnvironmentLookup& lookup, const RankNames& chosen, int rank,
                       int size) {
  for (const RankNames* other : kMpiNames) {
    if (other == &chosen) continue;
    const auto seen = rank_and_size(lookup, *other);
    if (!seen) continue;
    if (seen->second != size) {
      throw_contradiction(assignment(chosen.world_size, size),
                          assignment(other->world_size, seen->second));
    }
    if (seen->first != rank) {
      throw_contradiction(assignment(chosen.rank, rank), assignment(other->rank, seen->first));
    }
  }
}

// How many ranks share this machine where the launcher does not say: packed nodes give it away
// from the second node on; on the first one all ranks may well be here.
int guess_local_world_size(const RankNames& family, const RankEnvironment& result,
                           std::optional<int> node_rank) {
  const int ranks_before_this_node = result.rank - result.local_rank;
  if (ranks_before_this_node == 0) return result.world_size;
  const int nodes_before = node_rank.value_or(0);
  if (nodes_before > 0 && ranks_before_this_node > 0 &&
      ranks_before_this_node % nodes_before == 0) {
    return ranks_before_this_node / nodes_before;
  }
  throw ConfigError({.what = assignment(family.local_rank, result.local_rank) + " differs from " +
                             assignment(family.rank, result.rank) + ", and " +
                             family.local_world_size + " is not set",
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

std::optional<int> read_node_rank(const EnvironmentLookup& lookup, const RankNames& family) {
  const auto node_rank = number(lookup, family.node_rank);
  if (&family != &kTorchrunNames) return node_rank;
  const auto group_rank = number(lookup, "GROUP_RANK");
  if (node_rank && group_rank && *node_rank != *group_rank) {
    throw_contradiction(assignment("NODE_RANK", *node_rank), assignment("GROUP_RANK", *group_rank));
  }
  return node_rank ? node_rank : group_rank;
}

std::optional<int> read_local_world_size(const EnvironmentLookup& lookup, const RankNames& family) {
  if (&family != &kSlurmNames) return number(lookup, family.local_world_size, 1);
  auto tasks = variable_text(lookup, "SLURM_STEP_TASKS_PER_NODE");
  if (!tasks) tasks = variable_text(lookup, family.local_world_size);
  const int node = number(lookup, family.node_rank).value_or(0);
  return tasks ? slurm_tasks_on_node(*tasks, node) : std::nullopt;
}

void read_local_place(const EnvironmentLookup& lookup, const RankNames& family,
                      RankEnvironment& result) {
  const auto local_rank = number(lookup, family.local_rank);
  const auto local_size = read_local_world_size(lookup, family);
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

void read_job(const EnvironmentLookup& lookup, const RankNames& family, RankEnvironment& result) {
  for (const char* name : family.job) {
    if (const auto part = variable_text(lookup, name)) {
      result.job += (result.job.empty() ? "" : ".") + *part;
    }
  }
}

void read_master(const EnvironmentLookup& lookup, const RankNames& family,
                 RankEnvironment& result) {
  const auto address = variable_text(lookup, "MASTER_ADDR");
  const auto port = number(lookup, "MASTER_PORT", 1, 65535);
  const bool has_address = address.has_value();
  if (has_address) result.master_address = *address;
  if (port) {
    result.master_port = static_cast<uint16_t>(*port);
  } else if (!result.job.empty()) {
    // Two jobs on one machine must not meet on one port.
    result.master_port = port_of_name(result.job);
  }
  if (result.world_size == 1) return;

  if (&family == &kTorchrunNames && (!has_address || !port)) {
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
  if (&family == &kSlurmNames) {
    for (const char* name : {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"}) {
      const auto nodes = variable_text(lookup, name);
      if (!nodes) continue;
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

// The place that `family` gives this process, if it describes it.
std::optional<RankEnvironment> from_family(const EnvironmentLookup& lookup,
                                           const RankNames& family) {
  const auto place = rank_and_size(lookup, family);
  if (!place) return std::nullopt;
  require_agreement(lookup, family, place->first, place->second);
  RankEnvironment result;
  result.source = family.source;
  result.rank = place->first;
  result.world_size = place->second;
  read_local_place(lookup, family, result);
  read_job(lookup, family, result);
  result.restart_count = number(lookup, "TORCHELASTIC_RESTART_COUNT").value_or(0);
  result.max_restarts = number(lookup, "TORCHELASTIC_MAX_RESTARTS").value_or(0);
  read_master(lookup, family, result);
  return result;
}

// torchrun's names of the place on a machine mean nothing without rank and size.
void require_no_lone_local_names(const EnvironmentLookup& lookup) {
  for (const char* name : {kTorchrunNames.local_rank, kTorchrunNames.local_world_size}) {
    if (!variable_text(lookup, name)) continue;
    throw ConfigError({.what = std::string(name) + " is set but RANK and WORLD_SIZE are not",
                       .where = "environment of the process",
                       .hint = "set RANK and WORLD_SIZE too, or unset it for one process"});
  }
}

bool agent_hosts_store(const EnvironmentLookup& lookup) {
  const auto agent = lookup("TORCHELASTIC_USE_AGENT_STORE");
  return agent && (*agent == "True" || *agent == "true" || *agent == "1");
}

}  // namespace

RankEnvironment RankEnvironment::read(const EnvironmentLookup& lookup) {
  for (const RankNames* family : rank_families(lookup)) {
    if (auto place = from_family(lookup, *family)) {
      place->store_is_hosted = family == &kTorchrunNames && agent_hosts_store(lookup);
      return *place;
    }
    if (family == &kTorchrunNames) require_no_lone_local_names(lookup);
  }
  if (is_in_slurm_step(lookup)) return {};
  if (const auto script = rank_and_size(lookup, kSlurmNames); script && script->second > 1) {
    log(LogLevel::kWarning, assignment(kSlurmNames.world_size, script->second) +
                                " but this process was not started by srun: running alone");
  }
  return {};
}

}  // namespace accelerate
