#include <algorithm>
#include <limits>
#include <utility>

#include "accelerate/errors.h"
#include "config/sharding/fsdp_plan.h"
#include "config/sharding/sharding_request.h"

namespace accelerate::config {
namespace {

std::string fsdp_place_of(const GivenValues& given, const char* setting) {
  const auto value = given(setting);
  return value ? value->place : std::string(setting) + ", as nobody gave it";
}

[[noreturn]] void refuse_setting(const GivenValues& given, const char* setting,
                                 const std::string& what, const std::string& hint) {
  throw ConfigError({.what = what, .where = fsdp_place_of(given, setting), .hint = hint});
}

bool is_hybrid_request(const FsdpPlan& plan, int ranks) {
  if (plan.sharding == FsdpSharding::kHybrid || plan.sharding == FsdpSharding::kHybridGradients) {
    return true;
  }
  return plan.replicas > 1 || (plan.shard_size > 1 && plan.shard_size != ranks);
}

// Names of what says what is sharded: which of the two counts depends on the version.
const char* sharding_setting(const GivenValues& given, const FsdpPlan& plan) {
  const bool by_name = plan.version == 1 && given("fsdp_sharding_strategy").has_value();
  return by_name ? "fsdp_sharding_strategy" : "fsdp_reshard_after_forward";
}

void refuse_unavailable_fsdp(const GivenValues& given, const FsdpPlan& plan, int ranks) {
  if (is_hybrid_request(plan, ranks)) {
    const bool by_mesh = plan.replicas > 1;
    const bool by_size = !by_mesh && plan.shard_size > 1 && plan.shard_size != ranks;
    refuse_setting(given,
                   by_mesh   ? "parallelism_config_dp_replicate_size"
                   : by_size ? "parallelism_config_dp_shard_size"
                             : sharding_setting(given, plan),
                   "shards inside a node with replicas across nodes are not part of this build",
                   "FULL_SHARD or SHARD_GRAD_OP over all ranks");
  }
  if (plan.offload_params) {
    refuse_setting(given, "fsdp_offload_params",
                   "parameters in host memory are not part of this build",
                   "fsdp_offload_params: false");
  }
  if (plan.activation_checkpointing) {
    refuse_setting(given, "fsdp_activation_checkpointing",
                   "recomputing activations is not part of this build",
                   "fsdp_activation_checkpointing: false");
  }
  if (plan.activation_offload) {
    refuse_setting(given, "fsdp_activation_checkpointing_offload",
                   "activations in host memory are not part of this build",
                   "fsdp_activation_checkpointing_offload: false");
  }
  if (!plan.ignored_modules.empty()) {
    refuse_setting(given, "fsdp_ignored_modules",
                   "modules that are left unsharded are not part of this build",
                   "leave fsdp_ignored_modules out");
  }
}

int stage_of(FsdpSharding sharding) {
  switch (sharding) {
    case FsdpSharding::kNone:
      return 0;
    case FsdpSharding::kGradients:
    case FsdpSharding::kHybridGradients:
      return 2;
    case FsdpSharding::kFull:
    case FsdpSharding::kHybrid:
      return 3;
  }
  return 3;
}

void take_units(const GivenValues& given, const FsdpPlan& plan, ShardingRequest& request) {
  const auto policy = given("fsdp_auto_wrap_policy");
  if (!policy) return;
  if (request.stage.value < 3) {
    request.without_effect.push_back("fsdp_auto_wrap_policy (" + policy->place +
                                     "; only where parameters are sharded)");
    return;
  }
  switch (plan.units) {
    case FsdpUnits::kWholeModel:
      // No module has as many: everything is one unit.
      request.unit_numel = {std::numeric_limits<int64_t>::max(), policy->place};
      return;
    case FsdpUnits::kByClass:
      if (plan.unit_classes.empty()) return;  // by the structure of the model
      request.unit_classes = {plan.unit_classes,
                              fsdp_place_of(given, "fsdp_transformer_layer_cls_to_wrap")};
      return;
    case FsdpUnits::kBySize:
      request.unit_numel = {std::max<int64_t>(1, plan.min_num_params),
                            fsdp_place_of(given, "fsdp_min_num_params")};
      return;
  }
}

}  // namespace

ShardingRequest fsdp_request(const GivenValues& given, int ranks) {
  const FsdpPlan plan = fsdp_plan(given);
  refuse_unavailable_fsdp(given, plan, ranks);
  ShardingRequest request;
  request.stage = {stage_of(plan.sharding), fsdp_place_of(given, sharding_setting(given, plan))};
  request.without_effect = plan.without_effect;
  take_units(given, plan, request);
  return request;
}

}  // namespace accelerate::config
