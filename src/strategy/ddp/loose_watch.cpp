#include "strategy/ddp/loose_watch.h"

#include <string>

#include "strategy/ddp/replica_digest.h"

namespace accelerate {

std::vector<std::shared_ptr<LooseParameters>> LooseWatch::live() const {
  std::vector<std::shared_ptr<LooseParameters>> all;
  for (const auto& known : known_) {
    if (auto loose = known.lock()) all.push_back(std::move(loose));
  }
  return all;
}

std::shared_ptr<LooseParameters> LooseWatch::add_optimizer() {
  std::erase_if(known_, [](const auto& known) { return known.expired(); });
  auto loose = std::make_shared<LooseParameters>(ranks_, optimizers_++);
  known_.push_back(loose);
  return loose;
}

void LooseWatch::add_model(const torch::nn::Module& module) {
  for (const auto& loose : live()) loose->remove_those_of(module);
}

void LooseWatch::at_end_of_pass(const char* where) {
  for (const auto& loose : live()) loose->at_end_of_pass(where);
}

void LooseWatch::require_same(const char* where) const {
  NamedValues values;
  for (const auto& loose : live()) {
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
