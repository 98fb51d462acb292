#include "strategy/zero/zero_options.h"

#include <string>
#include <utility>

#include "accelerate/errors.h"
#include "strategy/ddp/ddp_strategy.h"
#include "strategy/zero/shard_groups.h"

namespace accelerate {
namespace {

[[noreturn]] void refuse_zero(std::string what, const char* where, std::string hint) {
  throw UsageError({.what = std::move(what), .where = where, .hint = std::move(hint)});
}

FsdpSharding sharding_of(const FsdpOptions& options) {
  const auto& named = options.sharding_strategy;
  const auto& reshards = options.reshard_after_forward;
  if (!reshards) return named.value_or(FsdpSharding::kFullShard);
  if (!named) return *reshards ? FsdpSharding::kFullShard : FsdpSharding::kShardGradOp;
  const bool frees_parameters =
      *named == FsdpSharding::kFullShard || *named == FsdpSharding::kHybridShard;
  if (frees_parameters != *reshards || *named == FsdpSharding::kNoShard) {
    refuse_zero("sharding_strategy and reshard_after_forward contradict each other", "FsdpOptions",
                "leave one of the two out");
  }
  return *named;
}

}  // namespace

void require_usable_zero(const ZeroOptions& options, int world_size) {
  constexpr const char* kStage = "ZeroOptions::stage";
  if (options.stage < 1 || options.stage > 3) {
    refuse_zero("there is no stage " + std::to_string(options.stage), kStage,
                "1 shards the state of optimizers, 2 gradients too, 3 parameters too; without "
                "shards it is DdpOptions");
  }
  if (options.stage < 3 && options.units != ZeroUnits{}) {
    refuse_zero("units are of stage 3, and this is stage " + std::to_string(options.stage),
                "ZeroOptions::units", "leave them out, or set stage to 3");
  }
  if (options.units.min_num_params < 0 || options.units.persistence_threshold < 0 ||
      options.units.max_reuse_distance < 0 || options.units.max_live_parameters < 0 ||
      options.units.prefetch < 0) {
    refuse_zero("a number below zero", "ZeroOptions::units", "leave it out for the default");
  }
  const auto& type = options.units.param_dtype;
  if (type && *type != at::kBFloat16 && *type != at::kHalf && *type != at::kFloat) {
    refuse_zero(std::string("parameters cannot be ") + c10::toString(*type),
                "ZeroOptions::units.param_dtype", "kBFloat16, kHalf or kFloat");
  }
  const auto& reduced = options.reduce_dtype;
  if (reduced && *reduced != at::kBFloat16 && *reduced != at::kHalf && *reduced != at::kFloat) {
    refuse_zero(std::string("gradients cannot be reduced as ") + c10::toString(*reduced),
                "ZeroOptions::reduce_dtype", "kBFloat16, kHalf or kFloat");
  }
  if (reduced && options.stage == 1) {
    refuse_zero("reduce_dtype is of stages 2 and 3, and this is stage 1",
                "ZeroOptions::reduce_dtype",
                "set ddp.comm_hook to one that compresses to this type, or set stage to 2");
  }
  if (!options.units.modules.empty() && options.units.min_num_params > 0) {
    refuse_zero("units by name and units by size", "ZeroOptions::units",
                "leave one of the two out");
  }
  require_usable_ddp(options.ddp);
  (void)shard_sizes_of(options, world_size);
  if (options.stage == 1) return;
  // Of c10d's reducer, which brings whole gradients together.
  if (options.ddp.comm_hook.hook != CommHook::kNo) {
    refuse_zero("communication hooks compress whole gradients, and those of stage 2 are sharded",
                "ZeroOptions::ddp.comm_hook", "leave the hook out, or use stage 1");
  }
  if (options.ddp.gradient_as_bucket_view) {
    refuse_zero("sharded gradients do not lie in buckets",
                "ZeroOptions::ddp.gradient_as_bucket_view", "leave it out, or use stage 1");
  }
}

std::variant<DdpOptions, ZeroOptions> named_otherwise(const FsdpOptions& options, int local_ranks) {
  const FsdpSharding sharding = sharding_of(options);
  const bool has_sizes = options.dp_shard_size || options.dp_replicate_size;
  if (sharding == FsdpSharding::kNoShard) {
    if (options.reduce_dtype) {
      refuse_zero("reduce_dtype without shards", "FsdpOptions::reduce_dtype",
                  "set ddp.comm_hook to one that compresses to this type");
    }
    if (has_sizes) {
      refuse_zero("kNoShard with dp_shard_size or dp_replicate_size", "FsdpOptions",
                  "leave the sizes out, or name a sharding_strategy that shards");
    }
    return options.ddp;
  }
  const bool is_hybrid =
      sharding == FsdpSharding::kHybridShard || sharding == FsdpSharding::kHybridShardZero2;
  const bool shards_parameters =
      sharding == FsdpSharding::kFullShard || sharding == FsdpSharding::kHybridShard;
  ZeroOptions zero{.stage = shards_parameters ? 3 : 2,
                   .reduce_dtype = options.reduce_dtype,
                   .ddp = options.ddp,
                   .dp_shard_size = options.dp_shard_size,
                   .dp_replicate_size = options.dp_replicate_size};
  if (is_hybrid && !has_sizes) zero.dp_shard_size = local_ranks;
  return zero;
}

std::vector<comm::Fact> facts_of(const ZeroOptions& options) {
  const ZeroUnits& units = options.units;
  const auto text = [](const std::optional<int>& size) {
    return size ? std::to_string(*size) : std::string("unset");
  };
  return {
      {"ZeroOptions::stage", std::to_string(options.stage)},
      {"ZeroOptions::reduce_dtype",
       options.reduce_dtype ? c10::toString(*options.reduce_dtype) : "unset"},
      {"ZeroOptions::ddp.bucket_cap_mb", std::to_string(options.ddp.bucket_cap_mb)},
      {"ZeroOptions::ddp.broadcast_buffers", options.ddp.broadcast_buffers ? "true" : "false"},
      {"ZeroOptions::ddp.check_replicas", options.ddp.check_replicas ? "true" : "false"},
      {"ZeroOptions::dp_shard_size", text(options.dp_shard_size)},
      {"ZeroOptions::dp_replicate_size", text(options.dp_replicate_size)},
      {"ZeroOptions::units.modules", comm::to_fields(units.modules)},
      {"ZeroOptions::units.min_num_params", std::to_string(units.min_num_params)},
      {"ZeroOptions::units.param_dtype",
       units.param_dtype ? c10::toString(*units.param_dtype) : "unset"},
      {"ZeroOptions::units.persistence_threshold", std::to_string(units.persistence_threshold)},
      {"ZeroOptions::units.reshard_after_forward", units.reshard_after_forward ? "true" : "false"},
      {"ZeroOptions::units.max_reuse_distance", std::to_string(units.max_reuse_distance)},
      {"ZeroOptions::units.max_live_parameters", std::to_string(units.max_live_parameters)},
      {"ZeroOptions::units.prefetch", std::to_string(units.prefetch)}};
}

int64_t bucket_bytes_of(const ZeroOptions& options) {
  return static_cast<int64_t>(options.ddp.bucket_cap_mb * 1024 * 1024);
}

}  // namespace accelerate
