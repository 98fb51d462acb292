// Detects ranks that diverge.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "accelerate/communicator.h"
#include "strategy/ddp/ddp_models.h"
#include "strategy/ddp/loose_watch.h"

namespace accelerate {

// Of one strategy. Called by the thread of the training.
class ReplicaWatch {
 public:
  ReplicaWatch(std::shared_ptr<Communicator> ranks, std::shared_ptr<DdpModels> models)
      : ranks_(std::move(ranks)), models_(std::move(models)), loose_(ranks_) {}

  LooseWatch& loose() { return loose_; }

  // Throws UsageError if a backward pass bypassed the accelerator. Not collective.
  void require_no_local_pass(const char* where) const;

  // Compares the models that are in training, and parameters that no model holds, with those of the
  // first rank that came to the end of this pass; throws UsageError if they differ, on all ranks:
  // those that are ahead throw it from the collective that they wait for, or from the next one. Not
  // collective: a rank that runs a pass alone meets nobody. Waits a moment for the store of the
  // group at most.
  void at_end_of_pass(const char* where);

  // Throws UsageError on all ranks alike if one of the models is not the same on all of them,
  // though it should be. Differences as small as rounding are logged. Collective.
  void require_same_replicas(const char* where) const;

 private:
  // Which of the ends of passes between two reductions one is.
  struct PassEnd {
    int64_t reduced_passes = -1;
    int64_t number = 0;
  };

  std::shared_ptr<Communicator> ranks_;
  std::shared_ptr<DdpModels> models_;
  LooseWatch loose_;
  std::map<int64_t, PassEnd> ends_;  // by the number of the model
  bool told_of_rounding_ = false;
};

}  // namespace accelerate
