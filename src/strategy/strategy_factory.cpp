#include "strategy/strategy_factory.h"

#include <string>
#include <utility>

#include "accelerate/communicator.h"
#include "accelerate/errors.h"
#include "device/device_backend.h"
#include "strategy/ddp/ddp_strategy.h"
#include "strategy/flat/flat_strategy.h"
#include "strategy/single.h"
#include "strategy/xla_spmd.h"
#include "strategy/zero/scatter_strategy.h"
#include "strategy/zero/shard_groups.h"
#include "strategy/zero/zero_options.h"
#include "strategy/zero/zero_strategy.h"

namespace accelerate {
namespace {

[[noreturn]] void refuse_strategy(std::string what, std::string hint) {
  throw UsageError(
      {.what = std::move(what), .where = "AcceleratorOptions::strategy", .hint = std::move(hint)});
}

// One alternative of StrategyOptions after the other.
struct StrategyMaker {
  const DdpOptions& ddp;
  const std::optional<FlatOptions>& flat;
  const StrategyContext& context;

  std::unique_ptr<Strategy> operator()(const AutoStrategy&) const {
    if (devices_in_program()) return (*this)(XlaSpmdOptions{});
    return (*this)(ddp);
  }

  std::unique_ptr<Strategy> operator()(const SingleOptions&) const {
    const int ranks = context.ranks->world_size();
    if (ranks == 1) return alone(ddp);
    refuse_strategy("SingleOptions for " + std::to_string(ranks) + " processes",
                    "leave the strategy out, or start one process");
  }

  std::unique_ptr<Strategy> operator()(const DdpOptions& options) const {
    require_usable(options.comm_hook);  // also where it has nothing to do yet
    if (context.ranks->world_size() == 1) return alone(options);
    require_usable_ddp(options);
    if (flat) return std::make_unique<FlatStrategy>(context.ranks, *flat, options);
    return std::make_unique<DdpStrategy>(context.ranks, options);
  }

  std::unique_ptr<Strategy> operator()(const ZeroOptions& options) const {
    if (devices_in_program()) {
      refuse_strategy("shards of ranks on an XLA device, where there is one process",
                      "XlaSpmdOptions{.shard_parameters = true} cuts parameters over its devices");
    }
    require_usable_zero(options, context.ranks->world_size());
    if (flat) {
      refuse_strategy("AcceleratorOptions::flat beside sharding",
                      "leave one of the two out: shards of flat parameters do not exist yet");
    }
    const bool has_masters = options.units.param_dtype.has_value();
    if (context.ranks->world_size() == 1 && !has_masters) return std::make_unique<SingleStrategy>();
    if (options.stage == 1) return std::make_unique<ZeroStrategy>(context.ranks, options);
    return std::make_unique<ScatterStrategy>(context.ranks, options);
  }

  std::unique_ptr<Strategy> operator()(const FsdpOptions& options) const {
    return std::visit(*this, named_otherwise(options, local_ranks_of(*context.ranks)));
  }

  std::unique_ptr<Strategy> operator()(const XlaSpmdOptions& options) const {
    if (flat) {
      refuse_strategy("AcceleratorOptions::flat on an XLA device",
                      "leave it out: XLA lays the parameters out itself");
    }
    if (const auto devices = devices_in_program()) {
      return std::make_unique<XlaSpmdStrategy>(context.device, *devices, options);
    }
    refuse_strategy("XlaSpmdOptions on " + context.device.str(),
                    "choose an XLA device, or leave the strategy out");
  }

  std::unique_ptr<Strategy> operator()(const std::shared_ptr<StrategyFactory>& factory) const {
    if (!factory) {
      refuse_strategy("the strategy is a null pointer",
                      "pass a StrategyFactory, or leave AcceleratorOptions::strategy out");
    }
    if (flat) {
      refuse_strategy("AcceleratorOptions::flat beside a strategy of your own",
                      "leave one of the two out");
    }
    auto strategy = factory->make(context);
    if (!strategy) refuse_strategy("the factory made no strategy", "return one from make()");
    return strategy;
  }

  // Where one process drives several devices by one program.
  std::optional<int> devices_in_program() const {
    return device::device_backend(context.device.type()).devices_in_program();
  }

  std::unique_ptr<Strategy> alone(const DdpOptions& options) const {
    if (devices_in_program()) return (*this)(XlaSpmdOptions{});
    if (flat) return std::make_unique<FlatStrategy>(context.ranks, *flat, options);
    return std::make_unique<SingleStrategy>();
  }
};

}  // namespace

std::unique_ptr<Strategy> make_strategy(const StrategyOptions& options, const DdpOptions& ddp,
                                        const std::optional<FlatOptions>& flat,
                                        const StrategyContext& context) {
  if (!std::holds_alternative<AutoStrategy>(options) && ddp != DdpOptions{}) {
    refuse_strategy("options of DDP beside a strategy that is named",
                    "pass them as .strategy = DdpOptions{...}, or leave the strategy out");
  }
  return std::visit(StrategyMaker{ddp, flat, context}, options);
}

void set_zero_options(Strategy& strategy, const ZeroOptions& options) {
  if (auto* scattered = dynamic_cast<ScatterStrategy*>(&strategy)) scattered->set_options(options);
}

}  // namespace accelerate
