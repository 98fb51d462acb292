#include "strategy/ddp/ddp_models.h"

#include <algorithm>

namespace accelerate {

void DdpModels::add(const std::shared_ptr<ModelStrategy>& strategy,
                    const std::shared_ptr<DdpModel>& model) {
  std::erase_if(known_, [](const Known& known) { return known.is_gone(); });
  known_.push_back(
      {.strategy = strategy, .model = model, .averages = model != nullptr, .number = added_++});
}

bool DdpModels::Known::is_gone() const {
  if (!averages) return strategy.expired();
  const auto replica = model.lock();
  return !replica || replica->is_released();
}

std::vector<DdpModels::Entry> DdpModels::live() const {
  std::vector<Entry> entries;
  size_t position = 0;
  for (const Known& known : known_) {
    if (known.is_gone()) continue;
    if (auto model = known.model.lock()) {
      entries.push_back({.model = std::move(model), .position = position, .number = known.number});
    }
    ++position;
  }
  return entries;
}

std::vector<std::shared_ptr<DdpModel>> DdpModels::among(
    const std::vector<std::shared_ptr<ModelStrategy>>& strategies) const {
  std::vector<std::shared_ptr<DdpModel>> models;
  for (Entry& entry : live()) {
    const auto is_this = [&](const auto& strategy) { return strategy == entry.model; };
    if (std::ranges::any_of(strategies, is_this)) models.push_back(std::move(entry.model));
  }
  return models;
}

}  // namespace accelerate
