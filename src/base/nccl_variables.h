// The environment variables by which NCCL, and libtorch's backend for it, are told how to work.
// Standard headers only.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace accelerate {

// Ranks may share GPUs over NCCL, for tests.
inline constexpr const char* kShareGpusVariable = "ACCELERATE_SHARE_GPUS";
// NCCL connects when a group is opened, not at its first exchange.
inline constexpr const char* kEagerNcclVariable = "ACCELERATE_EAGER_NCCL";

struct NcclVariable {
  std::string name;
  std::string value;
};

using NcclVariableLookup = std::function<std::optional<std::string>(const char* name)>;

// What lets `rank`, counted over all machines, share its GPU with other ranks. NCCL refuses two
// ranks on one GPU of one host, so each rank gets a host of its own: NCCL_HOSTID is replaced. The
// ranks then talk over sockets: those of the loopback interface if all are on this machine, unless
// NCCL_SOCKET_IFNAME says otherwise.
std::vector<NcclVariable> shared_gpu_variables(const NcclVariableLookup& lookup, int rank,
                                               bool one_machine);

// What leaves failures to the peer watch of this library. libtorch's own watchdog would end the
// process, after a minute in which nothing can be queued. Without those that are set already.
std::vector<NcclVariable> failure_variables(const NcclVariableLookup& lookup);

// Variables that are set, as "NAME=value", by which libtorch may end the process before this
// library has said who is to blame.
std::vector<std::string> foreign_failure_settings(const NcclVariableLookup& lookup);

}  // namespace accelerate
