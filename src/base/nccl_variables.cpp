#include "base/nccl_variables.h"

#include <array>

namespace accelerate {
namespace {

struct FailureVariable {
  const char* name;
  const char* older_name;  // which libtorch reads too; null: there is none
  const char* value;
};

constexpr std::array<FailureVariable, 5> kFailureVariables{{
    // Neither abort communicators nor throw on the thread of the watchdog.
    {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "NCCL_ASYNC_ERROR_HANDLING", "0"},
    // No thread that ends the process when the watchdog stands still.
    {"TORCH_NCCL_ENABLE_MONITORING", nullptr, "0"},
    // An error of CUDA ends the watchdog, not the process.
    {"TORCH_NCCL_RETHROW_CUDA_ERRORS", nullptr, "0"},
    // No files of collectives, and no wait for other ranks to write theirs, during which the
    // watchdog holds the lock that every new collective needs.
    {"TORCH_NCCL_DUMP_ON_TIMEOUT", nullptr, "0"},
    {"TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC", nullptr, "0"},
}};

// The name under which it is set, and its value.
std::optional<NcclVariable> found(const NcclVariableLookup& lookup,
                                  const FailureVariable& variable) {
  for (const char* name : {variable.name, variable.older_name}) {
    if (name == nullptr) continue;
    if (auto value = lookup(name)) return NcclVariable{.name = name, .value = *std::move(value)};
  }
  return std::nullopt;
}

}  // namespace

std::vector<NcclVariable> shared_gpu_variables(const NcclVariableLookup& lookup, int rank,
                                               bool one_machine) {
  std::vector<NcclVariable> variables{
      {.name = "NCCL_HOSTID", .value = "accelerate-rank-" + std::to_string(rank)}};
  if (one_machine && lookup("NCCL_SOCKET_IFNAME").value_or("").empty()) {
    variables.push_back({.name = "NCCL_SOCKET_IFNAME", .value = "lo"});
  }
  return variables;
}

std::vector<NcclVariable> failure_variables(const NcclVariableLookup& lookup) {
  std::vector<NcclVariable> variables;
  for (const FailureVariable& variable : kFailureVariables) {
    if (found(lookup, variable)) continue;
    variables.push_back({.name = variable.name, .value = variable.value});
  }
  return variables;
}

std::vector<std::string> foreign_failure_settings(const NcclVariableLookup& lookup) {
  std::vector<std::string> settings;
  for (const FailureVariable& variable : kFailureVariables) {
    const auto set = found(lookup, variable);
    if (set && set->value != variable.value) settings.push_back(set->name + "=" + set->value);
  }
  return settings;
}

}  // namespace accelerate
