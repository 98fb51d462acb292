// The models of a strategy that shards, as its optimizers see them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "accelerate/strategy.h"
#include "residency/touch/touched_units.h"
#include "strategy/zero/shard_plan.h"

namespace accelerate {

// A model under a strategy that shards, and how it is cut. Where parameters live in shards, unit i
// has the parameters of bucket i, in their order; buckets that follow have whole ones.
struct PlannedModel {
  std::weak_ptr<ModelStrategy> model;
  std::shared_ptr<const ShardPlan> plan;
  std::shared_ptr<residency::TouchedUnits> units;  // null: all parameters are whole
  // How many passes had brought gradients together before one left gradients on this rank.
  std::optional<int64_t> passes_before_local{};

  // Whether gradients are those of this rank alone: since a pass in no_sync() none has averaged
  // them.
  bool holds_local() const;
  // Its parameters may be gone.
  bool is_gone() const {
    const auto held = model.lock();
    return !held || !held->usable();
  }
};

// Those of one strategy, shared with its optimizers.
class PlannedModels {
 public:
  void add(const std::shared_ptr<ModelStrategy>& model, std::shared_ptr<const ShardPlan> plan,
           std::shared_ptr<residency::TouchedUnits> units = nullptr);

  struct Found {
    std::shared_ptr<ModelStrategy> model;
    std::shared_ptr<const ShardPlan> plan;
    std::shared_ptr<residency::TouchedUnits> units;
    size_t parameter = 0;
    bool holds_local = false;  // the model
  };
  // Where a parameter belongs; nothing where it is not sharded.
  std::optional<Found> find(const at::Tensor& parameter) const;

  // Before a backward pass in which `models` may get gradients. Where `warns`, this warns once of a
  // program whose passes nobody steps by: step() of the optimizer that was given to prepare()
  // updates nothing, without a word.
  void note_pass(const std::vector<std::shared_ptr<ModelStrategy>>& models, bool warns);
  // An optimizer of these models was prepared, or steps.
  void note_step() { passes_without_step_ = 0; }
  // The gradients of `parameters` are about to be dropped.
  void note_dropped(const std::vector<at::Tensor>& parameters);

 private:
  std::vector<PlannedModel> models_;
  std::optional<int64_t> passes_without_step_{};  // unset before the first optimizer
  bool has_warned_ = false;
};

}  // namespace accelerate
