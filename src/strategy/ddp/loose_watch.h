// The parameters of all optimizers of one strategy that no prepared model holds.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "accelerate/communicator.h"
#include "strategy/ddp/loose_parameters.h"

namespace accelerate {

// Called by the thread of the training.
class LooseWatch {
 public:
  explicit LooseWatch(std::shared_ptr<Communicator> ranks) : ranks_(std::move(ranks)) {}

  // An optimizer was prepared; the result is watched as long as somebody holds it.
  std::shared_ptr<LooseParameters> add_optimizer();
  // A model was prepared.
  void add_model(const torch::nn::Module& module);

  // Throws UsageError on all ranks if they differ; see LooseParameters. Not collective.
  void at_end_of_pass(const char* where);
  // Throws UsageError on all ranks alike if they differ. Differences as small as rounding are
  // logged. Collective.
  void require_same(const char* where) const;

 private:
  std::vector<std::shared_ptr<LooseParameters>> live() const;

  std::shared_ptr<Communicator> ranks_;
  std::vector<std::weak_ptr<LooseParameters>> known_;
  size_t optimizers_ = 0;  // that were ever prepared
};

}  // namespace accelerate
