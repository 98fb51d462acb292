#include "strategy/ddp/replica_watch.h"

#include <torch/nn/module.h>

#include <string>

#include "comm/groups/communicator_impl.h"
#include "strategy/ddp/replica_digest.h"

namespace accelerate {

void ReplicaWatch::require_no_local_pass(const char* where) const {
  for (const auto& entry : models_->live()) entry.model->require_no_local_pass(where);
}

void ReplicaWatch::at_end_of_pass(const char* where) {
  require_no_local_pass(where);
  loose_.at_end_of_pass(where);
  for (const auto& [model, position, number] : models_->live()) {
    if (!model->is_replicated() || !model->module().is_training()) continue;
    PassEnd& end = ends_[number];
    if (end.reduced_passes != model->reduced_passes()) {
      end = {.reduced_passes = model->reduced_passes()};
    }
    const std::string key = "replica/" + std::to_string(number) + "/" +
                            std::to_string(end.reduced_passes) + "/" + std::to_string(end.number++);
    const ReplicaDigest own = ReplicaDigest::of(model->module());
    const auto found = own.compare_with_first(*ranks_, key);
    if (!found) continue;
    const auto& [difference, first] = *found;
    const std::string text = difference_text(difference, position, first, ranks_->rank());
    if (!difference.is_rounding) {
      comm::impl_of(*ranks_).refuse_on_all(difference_error(text, where));
    }
    if (!std::exchange(told_of_rounding_, true)) warn_of_rounding(text);
  }
}

void ReplicaWatch::require_same_replicas(const char* where) const {
  for (const auto& [model, position, number] : models_->live()) {
    require_same_replica(*ranks_, model->module(), position, model->is_replicated(), where);
  }
}

}  // namespace accelerate
