#include "strategy/ddp/replica_watch.h"

#include <torch/nn/module.h>

#include <string>

#include "comm/groups/communicator_impl.h"
#include "strategy/ddp/replica_digest.h"

namespace accelerate {

void ReplicaWatch::require_no_local_pass(const char* where) const {
  for (const auto& entry : models_->live()) entry.model->require_no_local_pass(where);
}

std::shared_ptr<LooseParameters> ReplicaWatch::add_optimizer() {
  std::erase_if(loose_, [](const auto& known) { return known.expired(); });
  auto loose = std::make_shared<LooseParameters>(ranks_, optimizers_++);
  loose_.push_back(loose);
  return loose;
}

void ReplicaWatch::add_model(const torch::nn::Module& module) {
  for (const auto& known : loose_) {
    if (const auto loose = known.lock()) loose->remove_those_of(module);
  }
}

void ReplicaWatch::at_end_of_pass(const char* where) {
  require_no_local_pass(where);
  for (const auto& known : loose_) {
    if (const auto loose = known.lock()) loose->at_end_of_pass(where);
  }
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

void ReplicaWatch::require_same_loose_parameters(const char* where) const {
  NamedValues values;
  for (const auto& known : loose_) {
    const auto loose = known.lock();
    if (!loose) continue;
    values.insert(values.end(), loose->values().begin(), loose->values().end());
  }
  const ReplicaDigest own = ReplicaDigest::of(values);
  const std::string mine = own.encode();
  const std::vector<std::string> all = ranks_->all_gather_bytes(mine);
  for (size_t rank = 1; rank < all.size(); ++rank) {
    // Ranks that hold other optimizers have nothing to compare.
    if (all[rank].size() != all[0].size() || mine.size() != all[0].size()) continue;
    ReplicaDigest expected = ReplicaDigest::decode(all[0]);
    expected.take_names(own);
    const auto difference = expected.compare(ReplicaDigest::decode(all[rank]));
    if (!difference) continue;
    const std::string text = difference_text(difference->parameter, 0, static_cast<int>(rank));
    if (!difference->is_rounding) throw UsageError(LooseParameters::error(text, where));
    if (ranks_->rank() == 0) warn_of_rounding(text);
  }
}

}  // namespace accelerate
