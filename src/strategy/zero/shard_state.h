// What an optimizer keeps for parameters, cut into shards.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "accelerate/torch_archive.h"
#include "strategy/zero/shard_plan.h"

namespace torch::optim {
class Optimizer;
}

namespace accelerate {

// A tensor that the groups of an optimizer hold in place of one of its parameters.
struct HeldShard {
  size_t parameter = 0;                    // by its place among all parameters of the optimizer
  std::optional<ElementRange> elements{};  // unset: the parameter itself
};

// The state of an optimizer before its parameters are replaced; nothing where it keeps none yet.
// Throws UsageError for types whose state is not known.
std::optional<TorchValue> state_before_shards(const torch::optim::Optimizer& optimizer);

// Gives the optimizer what `state` has for its shards. Its groups hold `held`, in their order.
void load_shards_of_state(torch::optim::Optimizer& optimizer, const TorchValue& state,
                          const std::vector<HeldShard>& held);

}  // namespace accelerate
