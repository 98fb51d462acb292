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

// One process drives all XLA devices of its machine: batches are cut over them by rows, and XLA
// puts the exchanges into its program. The default where an XLA client has several devices; there
// num_processes() is 1 and a batch is that of all devices. UsageError on other devices.
struct XlaSpmdOptions {
  // Cut large parameters over the devices too, and with them their gradients and the state of their
  // optimizers. Off: every device has all of them.
  bool shard_parameters = false;
};

// The last alternative is the open door: a strategy of your own. On one process DdpOptions,
// ZeroOptions and FsdpOptions give "single": there is nobody to average or to share with.
//   Accelerator accelerator({.strategy = DdpOptions{.static_graph = true}});
//   Accelerator accelerator({.strategy = ZeroOptions{.stage = 2}});
//   Accelerator accelerator({.strategy = std::make_shared<MyFactory>()});
using StrategyOptions = std::variant<AutoStrategy, SingleOptions, DdpOptions, ZeroOptions,
                                     FsdpOptions, XlaSpmdOptions, std::shared_ptr<StrategyFactory>>;

}  // namespace accelerate
