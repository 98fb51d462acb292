// The optimizers that an accelerator has prepared.
#pragma once

#include <functional>
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

  void add(const PreparedOptimizer& prepared) { prepared_.push_back(prepared); }
  // Valid until the next call.
  const std::vector<PreparedOptimizer>& live();
  // Null if it was not prepared or was dropped; valid until the next call.
  const PreparedOptimizer* find(const torch::optim::Optimizer& optimizer);
  // The one whose learning rates `rates` reads; null if there is none. Changes one of them for a
  // moment to see.
  torch::optim::Optimizer* find_read_by(const std::function<std::vector<double>()>& rates);
  void clear();

 private:
  std::function<void(const torch::optim::Optimizer&)> forget_;
  std::vector<PreparedOptimizer> prepared_;
};

}  // namespace accelerate
