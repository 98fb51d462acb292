#include "strategy/ddp/ddp_models.h"

#include <algorithm>

namespace accelerate {

void DdpModels::add(const std::shared_ptr<ModelStrategy>& strategy,
                    const std::shared_ptr<DdpModel>& model) {
  known_.push_back(
      {.strategy = strategy, .model = model, .averages = model != nullptr, .number = added_++});
}

void DdpModels::drop_released() {
  std::erase_if(known_, [](const Known& known) {
    if (known.strategy.expired()) return true;
    return known.averages && known.model.lock()->is_released();
  });
}

std::vector<DdpModels::Entry> DdpModels::live() {
  drop_released();
  std::vector<Entry> entries;
  for (size_t i = 0; i < known_.size(); ++i) {
    if (auto model = known_[i].model.lock()) {
      entries.push_back({.model = std::move(model), .position = i, .number = known_[i].number});
    }
  }
  return entries;
}

std::vector<std::shared_ptr<DdpModel>> DdpModels::among(
    const std::vector<std::shared_ptr<ModelStrategy>>& strategies) {
  std::vector<std::shared_ptr<DdpModel>> models;
  for (Entry& entry : live()) {
    const auto is_this = [&](const auto& strategy) { return strategy == entry.model; };
    if (std::ranges::any_of(strategies, is_this)) models.push_back(std::move(entry.model));
  }
  return models;
}

}  // namespace accelerate
