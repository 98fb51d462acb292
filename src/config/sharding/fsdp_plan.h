// What settings of FSDP ask for: plain values from which the library makes its own options.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/sharding/given_values.h"

namespace accelerate::config {

// In the order of the numbers that version 1 takes too, from 1.
enum class FsdpSharding {
  kFull,             // parameters, gradients and optimizer state
  kGradients,        // the same, but parameters stay whole from forward to backward
  kNone,             // nothing: DDP
  kHybrid,           // kFull inside a node, replicas across
  kHybridGradients,  // kGradients likewise
};

// How the model is split into units that are gathered together.
enum class FsdpUnits { kWholeModel, kByClass, kBySize };

// The defaults are those of the launcher.
struct FsdpPlan {
  int version = 1;
  FsdpSharding sharding = FsdpSharding::kFull;
  bool reshard_after_forward = true;  // follows from `sharding` in version 1, decides it in 2
  FsdpUnits units = FsdpUnits::kWholeModel;
  std::vector<std::string> unit_classes{};  // of kByClass; empty: what the model proposes
  int64_t min_num_params = 100'000'000;     // of kBySize
  bool offload_params = false;
  bool cpu_ram_efficient_loading = true;
  bool sync_module_states = true;  // always so in version 2
  bool activation_checkpointing = false;
  bool activation_offload = false;
  std::string ignored_modules{};  // regular expression of names; "": none
  int64_t shard_size = 1;         // ranks of a replica, 1 beside 1 replica: all
  int64_t replicas = 1;
  std::vector<std::string> without_effect{};  // settings, in the order of the table

  bool operator==(const FsdpPlan&) const = default;
};

// Throws ConfigError that names the place, or both places, for wrong values and for settings that
// contradict each other or ask for what that version does not have.
FsdpPlan fsdp_plan(const GivenValues& given);

}  // namespace accelerate::config
