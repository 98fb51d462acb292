// Which strategy an accelerator trains with.
#pragma once

#include <memory>
#include <variant>

#include "accelerate/ddp.h"
#include "accelerate/strategy.h"
#include "accelerate/zero.h"

namespace accelerate {

// What ACCELERATE_USE_DEEPSPEED or ACCELERATE_USE_FSDP and their variables ask for, as `accelerate
// launch` sets them. Without them "single" for one process, "ddp" with AcceleratorOptions::ddp for
// several.
struct AutoStrategy {};

// One process. UsageError on several.
struct SingleOptions {};

// The last alternative is the open door: a strategy of your own. On one process DdpOptions,
// ZeroOptions and FsdpOptions give "single": there is nobody to average or to share with.
//   Accelerator accelerator({.strategy = DdpOptions{.static_graph = true}});
//   Accelerator accelerator({.strategy = ZeroOptions{.stage = 2}});
//   Accelerator accelerator({.strategy = std::make_shared<MyFactory>()});
using StrategyOptions = std::variant<AutoStrategy, SingleOptions, DdpOptions, ZeroOptions,
                                     FsdpOptions, std::shared_ptr<StrategyFactory>>;

}  // namespace accelerate
