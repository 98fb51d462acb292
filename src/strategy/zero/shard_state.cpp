#include "strategy/zero/shard_state.h"

#include <ATen/ATen.h>
#include <torch/optim/optimizer.h>

#include <string>
#include <utility>

#include "accelerate/errors.h"
#include "accelerate/optimizer_state.h"

namespace accelerate {
namespace {

// Counts updates: one number for all elements.
constexpr const char* kUpdates = "step";

TorchDict cut_entries(const TorchDict& entries, const std::optional<ElementRange>& elements) {
  if (!elements) return entries;
  TorchDict cut;
  for (const auto& [name, value] : entries.entries()) {
    const bool is_whole = !value.is_tensor() || name.as_string() == kUpdates;
    cut.add(name, is_whole ? value
                           : TorchValue(value.as_tensor().reshape({-1}).narrow(0, elements->begin,
                                                                               elements->numel())));
  }
  return cut;
}

}  // namespace

std::optional<TorchValue> state_before_shards(const torch::optim::Optimizer& optimizer) {
  if (optimizer.state().empty()) return std::nullopt;
  try {
    return optimizer_state(optimizer);
  } catch (const CheckpointError& error) {
    throw UsageError({.what = "the optimizer keeps something for its parameters already, which "
                              "cannot be sharded: " +
                              error.message(),
                      .where = "prepare",
                      .hint = "prepare it before its first update"});
  }
}

void load_shards_of_state(torch::optim::Optimizer& optimizer, const TorchValue& state,
                          const std::vector<HeldShard>& held) {
  const TorchDict& all = state.as_dict().at("state").as_dict();
  TorchDict states;
  for (size_t i = 0; i < held.size(); ++i) {
    const TorchValue* entries = all.find(static_cast<int64_t>(held[i].parameter));
    if (entries == nullptr) continue;
    states.add(static_cast<int64_t>(i), cut_entries(entries->as_dict(), held[i].elements));
  }
  TorchValue::List groups;
  int64_t number = 0;
  const auto& present = optimizer.param_groups();
  for (size_t i = 0; i < present.size(); ++i) {
    TorchDict group = state.as_dict().at("param_groups").as_sequence()[i].as_dict();
    TorchValue::List members;
    for (size_t k = 0; k < present[i].params().size(); ++k) members.emplace_back(number++);
    group.set("params", std::move(members));
    groups.emplace_back(std::move(group));
  }
  TorchDict cut;
  cut.add("state", std::move(states));
  cut.add("param_groups", std::move(groups));
  optimizer.state().clear();
  load_optimizer_state(optimizer, cut, "prepare");
}

}  // namespace accelerate
