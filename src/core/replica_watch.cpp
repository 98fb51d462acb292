#include "core/replica_watch.h"

#include <torch/nn/module.h>

#include <string>
#include <utility>

#include "comm/communicator_impl.h"
#include "strategy/ddp/replica_digest.h"

namespace accelerate {

void ReplicaWatch::require_no_local_pass(const char* where) const {
  for (const auto& model : models_->entries) model.strategy->require_no_local_pass(where);
}

void ReplicaWatch::at_end_of_pass() {
  require_no_local_pass("the end of a pass over the data");
  const auto ranks = ranks_.lock();
  if (!ranks) return;
  for (size_t i = 0; i < models_->entries.size(); ++i) {
    const auto& [module, strategy, number] = models_->entries[i];
    if (!strategy->is_replicated() || !module->is_training()) continue;
    PassEnd& end = ends_[number];
    if (end.reduced_passes != strategy->reduced_passes()) {
      end = {.reduced_passes = strategy->reduced_passes()};
    }
    const std::string key = "replica/" + std::to_string(number) + "/" +
                            std::to_string(end.reduced_passes) + "/" + std::to_string(end.number++);
    const ReplicaDigest own = ReplicaDigest::of(*module);
    const auto first = ranks->impl().first_value(key, own.encode());
    if (!first) continue;
    const auto difference = own.compare(ReplicaDigest::decode(first->value));
    if (!difference) continue;
    const std::string text = difference_text(*difference, i, first->rank, ranks->rank());
    if (!difference->is_rounding) {
      ranks->impl().refuse_on_all(difference_error(text, "the end of a pass over the data"));
    }
    if (!std::exchange(told_of_rounding_, true)) warn_of_rounding(text);
  }
}

void require_same_replicas(Communicator& ranks,
                           const std::vector<detail::PreparedModels::Entry>& models,
                           const char* where) {
  if (ranks.world_size() == 1) return;
  for (size_t i = 0; i < models.size(); ++i) {
    require_same_replica(ranks, *models[i].module, i, models[i].strategy->is_replicated(), where);
  }
}

}  // namespace accelerate
