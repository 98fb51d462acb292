// Options of the strategy that shards what training keeps for each parameter over the ranks.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "accelerate/ddp.h"

namespace accelerate {

// Which parameters are whole together, and when, in stage 3.
struct ZeroUnits {
  // A unit for each module of these classes, or whose name fits a pattern: in "blocks.*", * stands
  // for one part of a name and ** for any number. Empty: by the structure of the model, the members
  // of its lists of modules and its large layers.
  std::vector<std::string> modules{};
  // A unit for each module of at least so many parameters; 0: not by size.
  int64_t min_num_params = 0;
  // What modules compute with. The shards keep the type that parameters had: they are the masters,
  // which are updated and saved, and gradients are reduced in their type. Layers need inputs of
  // this type, as mixed_precision gives them. Unset: the same.
  std::optional<at::ScalarType> param_dtype{};
  // Tensors of fewer elements stay whole on every rank. Their gradients and state are sharded.
  int64_t persistence_threshold = 0;
  // A unit goes when the next one is touched, but for large ones that the pass uses again soon or
  // with smaller ones between (docs/sharding.md). If not, it stays until its gradient is done.
  bool reshard_after_forward = true;
  // One that is touched again within so many elements of others stays.
  int64_t max_reuse_distance = 0;
  // More elements are not whole at a time, unless one operation needs them; 0: no limit.
  int64_t max_live_parameters = 0;
  // So many units are gathered ahead, in the order of the steps before.
  int prefetch = 1;

  friend bool operator==(const ZeroUnits&, const ZeroUnits&) = default;
};

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
//  - In stage 2 the .grad() of a parameter is a row of the elements that this rank keeps, from a
//    reduced pass to zero_grad().
//  - In stage 3 parameters have memory only while an operation uses them or a view of them: the
//    ranks gather them then, so all ranks must do the same, evaluation included. Writing to a
//    parameter is a UsageError. free_memory(), or the end of the accelerator and of its models,
//    leaves the module without values: save_model() before.
// On one process there is nothing to share and the strategy is "single", unless units.param_dtype
// asks for another type.
struct ZeroOptions {
  // What each rank keeps a share of: 1 the state of optimizers; 2 gradients too; 3 parameters too.
  int stage = 2;
  // The type in which gradients are sent and added up over the ranks, in stages 2 and 3: kBFloat16
  // sends half of the bytes, rounded. Each rank keeps its mean in the usual type. Unset: that of
  // the parameters, in stage 3 of the masters. In stage 1 ddp.comm_hook does this.
  std::optional<at::ScalarType> reduce_dtype{};
  // How gradients are exchanged.
  DdpOptions ddp{};
  // Of stage 3.
  ZeroUnits units{};
  // How many ranks share one copy of the state, and how many copies there are: ranks that follow
  // each other keep shards of one copy, and what they gather and scatter stays among them, on one
  // machine, say; gradients are averaged over all. Unset: what the other one leaves, and all ranks
  // share where both are. UsageError unless they multiply to the number of processes.
  std::optional<int> dp_shard_size{};
  std::optional<int> dp_replicate_size{};

  friend bool operator==(const ZeroOptions&, const ZeroOptions&) = default;
};

// How FSDP calls the same.
enum class FsdpSharding {
  kFullShard,         // stage 3
  kShardGradOp,       // stage 2
  kNoShard,           // DDP
  kHybridShard,       // stage 3 in shards on each machine, with a copy on every one
  kHybridShardZero2,  // the same of stage 2
};

struct FsdpOptions {
  // Unset: what reshard_after_forward says, else kFullShard.
  std::optional<FsdpSharding> sharding_strategy{};
  // FSDP 2 says it by this: true is kFullShard, false kShardGradOp. UsageError where the two
  // contradict each other.
  std::optional<bool> reshard_after_forward{};
  // See ZeroOptions; that of FSDP's MixedPrecision.
  std::optional<at::ScalarType> reduce_dtype{};
  // How gradients are exchanged.
  DdpOptions ddp{};
  // See ZeroOptions. Where both are unset the hybrid strategies take the processes of a machine.
  std::optional<int> dp_shard_size{};
  std::optional<int> dp_replicate_size{};

  friend bool operator==(const FsdpOptions&, const FsdpOptions&) = default;
};

}  // namespace accelerate
