// Shards that come together over a group of ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "accelerate/communicator.h"
#include "residency/touch/shard_gatherer.h"

namespace accelerate::residency {

// Errors and notices of the watch call a gather by the unit: "gathering 'blocks.3'".
//
// Ranks that take different branches gather different units, which the exchange itself does not
// see where these are of one length. So each rank leaves in the store of the group which units it
// gathers, and those that come later compare, before they send anything: at each of the first
// gathers, later at every eighth. The first to see a difference throws UsageError that names both
// units, and the others throw it where they wait. That asks nobody to wait for other ranks.
class GroupGatherer final : public ShardGatherer {
 public:
  // `ranks` keep the shards of one copy, `all` those of all copies, which a broadcast reaches.
  // `model` is a number that no other gatherer of these has or had, the same on all ranks.
  GroupGatherer(std::shared_ptr<Communicator> ranks, std::shared_ptr<Communicator> all,
                size_t model)
      : ranks_(std::move(ranks)), all_(std::move(all)), model_(model) {}
  std::function<void()> begin(const GatherCall& call) override;
  void broadcast(at::Tensor whole, int rank) override;

  // Compares now: at the end of a pass, by as many calls on all ranks. Throws UsageError as begin()
  // does. Not collective.
  void compare_order(const char* where);

 private:
  void compare(const std::string& key, const char* where);

  std::shared_ptr<Communicator> ranks_;
  std::shared_ptr<Communicator> all_;
  const size_t model_;
  int64_t gathers_ = 0;
  int64_t comparisons_ = 0;
  uint64_t digest_ = 0;  // of all gathers so far
  std::deque<std::string> latest_;
};

}  // namespace accelerate::residency
