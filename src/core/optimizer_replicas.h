// Optimizers of which a checkpoint keeps the state of one rank for all.
#pragma once

#include <string_view>
#include <vector>

#include "accelerate/communicator.h"
#include "accelerate/prepared_optimizer.h"
#include "checkpoint/state/state_parts.h"
#include "core/prepared_models.h"
#include "strategy/ddp/replica_digest.h"

namespace torch::optim {
class Optimizer;
}

namespace accelerate {

// What an optimizer keeps for its parameters, each value with its name: "exp_avg of parameter 3".
NamedValues optimizer_values(const torch::optim::Optimizer& optimizer);
// All that replicas should have in common: parameters and what optimizers keep for them.
NamedValues replicated_values(const PreparedModels& models,
                              const std::vector<PreparedOptimizer>& optimizers);

// Throws UsageError, the same on all ranks, if the state of one of `optimizers` is not the same on
// all: of those without a layout whose state is not kept `elsewhere`. For strategies that promise
// nothing about it; `strategy` is the name of that, for the message. Collective; reads all state
// once and waits for the device.
void require_equal_optimizers(Communicator& ranks, const std::vector<PreparedOptimizer>& optimizers,
                              const checkpoint::OptimizersElsewhere& elsewhere,
                              std::string_view strategy);

}  // namespace accelerate
