// An optimizer that updates this rank's shares of the parameters of sharded models.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "accelerate/communicator.h"
#include "accelerate/strategy.h"
#include "residency/touch/touched_units.h"
#include "strategy/zero/planned_models.h"
#include "strategy/zero/shard_plan.h"

namespace accelerate {

// Puts shards into the groups in place of the user's parameters: rows of the elements that this
// rank keeps, in the memory of the parameter where that is contiguous. Parameters of which it keeps
// nothing leave the groups, those that are not sharded stay. Updates are made on the shards, by
// their parts of the gradients, and what the ranks have updated is then exchanged bucket by bucket.
// Parameters that live in shards themselves are gathered when they are touched next.
class ShardedOptimizer final : public OptimizerStrategy {
 public:
  using Check = std::function<void(const std::vector<at::Tensor>& parameters)>;

  // `before_update` may throw where gradients are not fit for an update of these parameters. Throws
  // UsageError if the optimizer cannot be sharded.
  ShardedOptimizer(torch::optim::Optimizer& optimizer, std::shared_ptr<Communicator> ranks,
                   std::shared_ptr<PlannedModels> models, Check before_update);

  std::vector<at::Tensor> parameters() const override;
  void before_step() override;
  void after_step() override;
  std::optional<OptimizerLayout> layout() const override;

 private:
  struct Sharded {
    at::Tensor parameter;
    at::Tensor shard;         // undefined where this rank keeps nothing
    bool is_touched = false;  // the parameter lives in shards, and this is one of them
    std::shared_ptr<const ShardPlan> plan;
    size_t number = 0;  // in the plan
    ElementRange own{};
  };
  // One of the user's parameters, in its place in a group.
  struct Member {
    at::Tensor parameter;
    std::optional<size_t> sharded{};  // which of sharded_
  };
  struct Group {
    std::vector<Member> members;
    size_t held = 0;  // tensors that the group holds for them
  };
  // The sharded parameters of this optimizer in one bucket.
  struct Share {
    std::shared_ptr<const ShardPlan> plan;
    size_t bucket = 0;
    std::vector<size_t> sharded{};
  };
  struct Exchange;

  size_t shard(const PlannedModels::Found& found, const at::Tensor& parameter);
  void require_known_members() const;
  void require_synchronised() const;
  void place(const Sharded& sharded) const;
  Exchange send(const Share& share) const;
  void receive(Exchange& exchange) const;

  std::shared_ptr<Communicator> ranks_;
  std::shared_ptr<PlannedModels> models_;
  Check before_update_;
  std::vector<Group> groups_;
  std::vector<Sharded> sharded_;
  std::vector<Share> shares_;
  std::vector<std::shared_ptr<residency::TouchedUnits>> units_;
};

}  // namespace accelerate
