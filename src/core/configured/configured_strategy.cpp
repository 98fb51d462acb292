#include "core/configured/configured_strategy.h"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>

#include "core/configured/settled_option.h"
#include "strategy/zero/zero_options.h"

namespace accelerate {
namespace {

using config::AskedValue;
using config::PlanDtype;
using config::ShardingRequest;

constexpr const char* kStrategyOption = "AcceleratorOptions::strategy";
constexpr double kMegabyte = 1024.0 * 1024.0;
constexpr double kBytesOfNumber = 4;  // of gradients, which are float32

std::string stage_text(int stage) {
  return stage == 0 ? "nothing is sharded (DDP)" : "stage " + std::to_string(stage);
}

[[noreturn]] void refuse_strategies(const std::string& named, const ShardingRequest& request) {
  config::refuse_contradiction("the program names " + named + ", and the configuration says that " +
                                   (request.stage.value == 0 ? "" : "it is ") +
                                   stage_text(request.stage.value),
                               kStrategyOption, request.stage.place,
                               "leave the strategy out of the program: the configuration decides");
}

at::ScalarType scalar_type_of(PlanDtype dtype) {
  switch (dtype) {
    case PlanDtype::kFloat16:
      return at::kHalf;
    case PlanDtype::kBfloat16:
      return at::kBFloat16;
    case PlanDtype::kFloat32:
      break;
  }
  return at::kFloat;
}

// `prefix` is what the program calls them.
void configure_ddp(const ShardingRequest& request, const std::string& prefix, DdpOptions& ddp) {
  const DdpOptions preset;
  if (const auto& bucket = request.reduce_bucket) {
    settle_option(ddp.bucket_cap_mb, preset.bucket_cap_mb,
                  static_cast<double>(bucket->value) * kBytesOfNumber / kMegabyte,
                  prefix + ".bucket_cap_mb", bucket->place);
  }
  if (request.looks_for_unused_parameters) ddp.find_unused_parameters = true;
  // Later stages have an option of their own for it.
  if (const auto& type = request.reduce_dtype; type && request.stage.value < 2) {
    settle_option(ddp.comm_hook.hook, preset.comm_hook.hook,
                  type->value == PlanDtype::kFloat16 ? CommHook::kFp16 : CommHook::kBf16,
                  prefix + ".comm_hook", type->place);
  }
}

void configure_units(const ShardingRequest& request, ZeroUnits& units) {
  const ZeroUnits preset;
  const std::string prefix = "ZeroOptions::units.";
  const auto settle = [&](auto ZeroUnits::*field, const auto& asked, const char* name) {
    if (asked)
      settle_option(units.*field, preset.*field, asked->value, prefix + name, asked->place);
  };
  settle(&ZeroUnits::modules, request.unit_classes, "modules");
  settle(&ZeroUnits::min_num_params, request.unit_numel, "min_num_params");
  settle(&ZeroUnits::persistence_threshold, request.persistence_threshold, "persistence_threshold");
  settle(&ZeroUnits::max_reuse_distance, request.max_reuse_distance, "max_reuse_distance");
  if (const auto& live = request.max_live_parameters) {
    // 0 would be no limit.
    settle_option(units.max_live_parameters, preset.max_live_parameters,
                  std::max<int64_t>(1, live->value), prefix + "max_live_parameters", live->place);
  }
  if (const auto& prefetches = request.prefetches; prefetches && !prefetches->value) {
    settle_option(units.prefetch, preset.prefetch, 0, prefix + "prefetch", prefetches->place);
  }
  if (const auto& type = request.param_dtype) {
    settle_option(units.param_dtype, preset.param_dtype, {scalar_type_of(type->value)},
                  prefix + "param_dtype", type->place);
  }
}

ZeroOptions configured_zero(const ShardingRequest& request, ZeroOptions options,
                            const char* ddp_prefix) {
  options.stage = request.stage.value;
  configure_ddp(request, ddp_prefix, options.ddp);
  if (const auto& type = request.reduce_dtype; type && options.stage >= 2) {
    settle_option(options.reduce_dtype, {}, {scalar_type_of(type->value)},
                  "ZeroOptions::reduce_dtype", type->place);
  }
  if (options.stage == 3) configure_units(request, options.units);
  return options;
}

// One alternative of StrategyOptions after the other.
struct ConfiguredStrategy {
  const ShardingRequest& request;
  DdpOptions& ddp;  // those beside AutoStrategy

  bool is_sharded() const { return request.stage.value > 0; }

  StrategyOptions operator()(const AutoStrategy& open) const {
    constexpr const char* kDdp = "AcceleratorOptions::ddp";
    if (!is_sharded()) {
      configure_ddp(request, kDdp, ddp);
      return open;
    }
    return configured_zero(request, {.ddp = std::exchange(ddp, {})}, kDdp);
  }
  StrategyOptions operator()(const SingleOptions& single) const {
    if (is_sharded()) refuse_strategies("SingleOptions", request);
    return single;
  }
  StrategyOptions operator()(DdpOptions own) const {
    if (is_sharded()) refuse_strategies("DdpOptions", request);
    configure_ddp(request, "DdpOptions", own);
    return own;
  }
  StrategyOptions operator()(const ZeroOptions& own) const {
    if (own.stage != request.stage.value) {
      refuse_strategies("ZeroOptions of " + stage_text(own.stage), request);
    }
    return configured_zero(request, own, "ZeroOptions::ddp");
  }
  StrategyOptions operator()(const FsdpOptions& own) const {
    const bool is_hybrid = own.sharding_strategy == FsdpSharding::kHybridShard ||
                           own.sharding_strategy == FsdpSharding::kHybridShardZero2;
    if (is_hybrid && !own.dp_shard_size && !own.dp_replicate_size) {
      refuse_strategies("FsdpOptions of hybrid sharding without dp_shard_size", request);
    }
    const auto same = named_otherwise(own, 1);
    if (const auto* zero = std::get_if<ZeroOptions>(&same)) {
      if (zero->stage != request.stage.value) {
        refuse_strategies("FsdpOptions of " + stage_text(zero->stage), request);
      }
      return configured_zero(request, *zero, "FsdpOptions::ddp");
    }
    if (is_sharded()) refuse_strategies("FsdpOptions that shard nothing", request);
    DdpOptions replicated = std::get<DdpOptions>(same);
    configure_ddp(request, "FsdpOptions::ddp", replicated);
    return replicated;
  }
  StrategyOptions operator()(const XlaSpmdOptions& /*own*/) const {
    refuse_strategies("XlaSpmdOptions", request);
  }
  StrategyOptions operator()(const std::shared_ptr<StrategyFactory>& /*own*/) const {
    refuse_strategies("a strategy of its own", request);
  }
};

}  // namespace

void configure_strategy(const ShardingRequest& request, AcceleratorOptions& options) {
  options.strategy = std::visit(ConfiguredStrategy{request, options.ddp}, options.strategy);
}

}  // namespace accelerate
