// The optimizers that an accelerator has prepared.
#pragma once

#include <cstdint>
#include <functional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "accelerate/prepared_optimizer.h"

namespace accelerate {

// Keeps those of which somebody else still has a handle: the user's optimizer may be gone as soon
// as its last handle is. One thread at a time.
class PreparedOptimizers {
 public:
  // `forget` is told of each optimizer that is dropped; it must not access it.
  explicit PreparedOptimizers(std::function<void(const torch::optim::Optimizer&)> forget)
      : forget_(std::move(forget)) {}

  void add(const PreparedOptimizer& prepared) {
    prepared_.push_back(prepared);
    numbers_.emplace(&prepared.optimizer(), ++added_);
  }
  // Drops those of which nobody else has a handle.
  void drop_expired();
  // What drop_expired() leaves; valid until the next call.
  const std::vector<PreparedOptimizer>& live();
  // Null if it was not prepared or was dropped; valid until the next call.
  const PreparedOptimizer* find(const torch::optim::Optimizer& optimizer);
  // The number of the one whose learning rates `rates` reads; 0 if there is none. Changes one of
  // them for a moment to see. The optimizer behind `rates` must be alive.
  int64_t number_read_by(const std::function<std::vector<double>()>& rates);
  // Null once it was dropped. No number is used twice.
  torch::optim::Optimizer* numbered(int64_t number);
  void clear();

 private:
  std::function<void(const torch::optim::Optimizer&)> forget_;
  void forget(const torch::optim::Optimizer& optimizer) {
    numbers_.erase(&optimizer);
    forget_(optimizer);
  }

  std::vector<PreparedOptimizer> prepared_;
  std::unordered_map<const torch::optim::Optimizer*, int64_t> numbers_;
  int64_t added_ = 0;
};

}  // namespace accelerate
