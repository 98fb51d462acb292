// The models that one strategy replicates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "accelerate/strategy.h"
#include "strategy/ddp/ddp_model.h"

namespace accelerate {

// Shared by a strategy and its optimizers. Holds no model: those that were released, or of which
// nobody has a handle any more, are left out. add() by one thread at a time, while nobody reads.
class DdpModels {
 public:
  struct Entry {
    std::shared_ptr<DdpModel> model;
    size_t position;  // among all models of the accelerator; for messages
    int64_t number;   // of all that were ever prepared: the same on all ranks, used once
  };

  // A model that averages gradients, or, where `model` is null, one that needs none.
  void add(const std::shared_ptr<ModelStrategy>& strategy, const std::shared_ptr<DdpModel>& model);

  // In the order in which they were added.
  std::vector<Entry> live() const;
  // Those of `strategies` among them, in that order.
  std::vector<std::shared_ptr<DdpModel>> among(
      const std::vector<std::shared_ptr<ModelStrategy>>& strategies) const;

 private:
  struct Known {
    std::weak_ptr<ModelStrategy> strategy;
    std::weak_ptr<DdpModel> model;  // empty where there is nothing to average
    bool averages;
    int64_t number;

    bool is_gone() const;
  };

  std::vector<Known> known_;
  int64_t added_ = 0;
};

}  // namespace accelerate
