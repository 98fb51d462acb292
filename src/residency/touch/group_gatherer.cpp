#include "residency/touch/group_gatherer.h"

#include <utility>

#include "comm/groups/activity.h"

namespace accelerate::residency {

std::function<void()> GroupGatherer::begin(const GatherCall& call) {
  const comm::Activity activity(*ranks_, "gathering '" + call.name + "'");
  at::Tensor whole = call.whole;
  auto work = std::make_shared<Work>(ranks_->all_gather_into_async(whole, call.shard));
  return [work] { work->wait(); };
}

void GroupGatherer::broadcast(at::Tensor whole, int rank) {
  const comm::Activity activity(*ranks_, "full_parameters");
  ranks_->broadcast(whole, rank);
}

}  // namespace accelerate::residency
