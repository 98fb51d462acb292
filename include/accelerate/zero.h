// Options of the strategy that shards what training keeps for each parameter over the ranks.
#pragma once

#include <optional>

#include "accelerate/ddp.h"

namespace accelerate {

// Each rank keeps a share of the training state (ZeRO). The loop stays as it is, and the parameters
// come out as DDP makes them: where gradients are sharded, but for rounding on three and more
// ranks.
//
//   Accelerator accelerator({.strategy = ZeroOptions{.stage = 1}});
//   auto [model, optimizer] = accelerator.prepare(net, adamw);
//
// The optimizer that is given to prepare() holds this rank's shares in place of the parameters and
// updates them; then the ranks exchange what they have updated. What to know:
//  - The update must go element by element, as those of SGD, Adam, AdamW, Adagrad and RMSprop do.
//    One that looks at whole tensors would see shares. LBFGS is a UsageError.
//  - Only step() of what prepare() returned updates. The model is prepared before the optimizer or
//    in the same call.
//  - step() is collective. A step inside of no_sync() or LocalSgd, join_uneven_inputs() and steps
//    that are recorded as graphs are a UsageError.
//  - Parameters that are frozen when the model is prepared, that get sparse gradients, or that no
//    prepared model holds are not sharded: every rank updates them.
// On one process there is nothing to share and the strategy is "single".
struct ZeroOptions {
  // What each rank keeps a share of: 1 the state of optimizers; 2 gradients too; 3 parameters too.
  int stage = 2;
  // How gradients are exchanged.
  DdpOptions ddp{};

  friend bool operator==(const ZeroOptions&, const ZeroOptions&) = default;
};

// How FSDP calls the same.
enum class FsdpSharding {
  kFullShard,         // stage 3
  kShardGradOp,       // stage 2
  kNoShard,           // DDP
  kHybridShard,       // shards inside of a node, replicas across: UsageError so far
  kHybridShardZero2,  // the same of stage 2: UsageError so far
};

struct FsdpOptions {
  // Unset: what reshard_after_forward says, else kFullShard.
  std::optional<FsdpSharding> sharding_strategy{};
  // FSDP 2 says it by this: true is kFullShard, false kShardGradOp. UsageError where the two
  // contradict each other.
  std::optional<bool> reshard_after_forward{};
  // How gradients are exchanged.
  DdpOptions ddp{};

  friend bool operator==(const FsdpOptions&, const FsdpOptions&) = default;
};

}  // namespace accelerate
