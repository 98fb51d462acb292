#include "core/replica_watch.h"

#include <torch/nn/module.h>

#include <string>
#include <utility>

#include "accelerate/errors.h"
#include "accelerate/log.h"
#include "comm/communicator_impl.h"
#include "strategy/replica_digest.h"

namespace accelerate {
namespace {

std::string difference_text(const ReplicaDigest::Difference& difference, size_t model, int one,
                            int other) {
  return "'" + difference.parameter + "' of model " + std::to_string(model) +
         " differs between rank " + std::to_string(one) + " and rank " + std::to_string(other);
}

[[noreturn]] void refuse_difference(const std::string& text, const char* where) {
  throw UsageError(
      {.what = "the ranks hold different parameters: " + text,
       .where = where,
       .hint =
           "train with accelerator.backward(loss) and the prepared optimizer's step(), and change "
           "parameters by hand on all ranks alike; {.ddp = {.check_replicas = false}} switches "
           "this check off"});
}

void warn_of_rounding(const std::string& text) {
  log(LogLevel::kWarning, "the ranks hold slightly different parameters: " + text +
                              ", as on different hardware; gradients are still averaged");
}

}  // namespace

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
    if (!difference->is_rounding) refuse_difference(text, "the end of a pass over the data");
    if (!std::exchange(told_of_rounding_, true)) warn_of_rounding(text);
  }
}

void require_same_replicas(Communicator& ranks,
                           const std::vector<detail::PreparedModels::Entry>& models,
                           const char* where) {
  if (ranks.world_size() == 1) return;
  for (size_t i = 0; i < models.size(); ++i) {
    // On a rank where it need not be the same: nothing.
    const bool compares = models[i].strategy->is_replicated();
    const ReplicaDigest own = compares ? ReplicaDigest::of(*models[i].module) : ReplicaDigest();
    const std::vector<std::string> all = ranks.all_gather_bytes(own.encode());
    for (size_t rank = 1; rank < all.size(); ++rank) {
      if (all[0].empty() || all[rank].empty()) continue;
      // The names are those of this rank; all have the same.
      ReplicaDigest first = ReplicaDigest::decode(all[0]);
      first.take_names(own);
      const auto difference = first.compare(ReplicaDigest::decode(all[rank]));
      if (!difference) continue;
      const std::string text = difference_text(*difference, i, 0, static_cast<int>(rank));
      if (!difference->is_rounding) refuse_difference(text, where);
      if (ranks.rank() == 0) warn_of_rounding(text);
    }
  }
}

}  // namespace accelerate
