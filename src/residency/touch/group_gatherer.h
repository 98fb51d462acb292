// Shards that come together over a group of ranks.
#pragma once

#include <memory>

#include "accelerate/communicator.h"
#include "residency/touch/shard_gatherer.h"

namespace accelerate::residency {

// Errors and notices of the watch call a gather by the unit: "gathering 'blocks.3'". Ranks that
// wait for each other in different units are told so.
class GroupGatherer final : public ShardGatherer {
 public:
  explicit GroupGatherer(std::shared_ptr<Communicator> ranks) : ranks_(std::move(ranks)) {}
  std::function<void()> begin(const GatherCall& call) override;
  void broadcast(at::Tensor whole, int rank) override;

 private:
  std::shared_ptr<Communicator> ranks_;
};

}  // namespace accelerate::residency
