#include "core/prepared_optimizers.h"

#include <algorithm>

#include "optim/torch_schedule.h"

namespace accelerate {

void PreparedOptimizers::drop_expired() {
  std::erase_if(prepared_, [this](const PreparedOptimizer& prepared) {
    if (prepared.handles() > 1) return false;
    forget(prepared.optimizer());
    return true;
  });
}

const std::vector<PreparedOptimizer>& PreparedOptimizers::live() {
  drop_expired();
  return prepared_;
}

const PreparedOptimizer* PreparedOptimizers::find(const torch::optim::Optimizer& optimizer) {
  const auto found = std::ranges::find_if(live(), [&](const PreparedOptimizer& prepared) {
    return &prepared.optimizer() == &optimizer;
  });
  return found == prepared_.end() ? nullptr : &*found;
}

int64_t PreparedOptimizers::number_read_by(const std::function<std::vector<double>()>& rates) {
  for (const PreparedOptimizer& prepared : live()) {
    if (reads_rates_of(rates, prepared)) return numbers_.at(&prepared.optimizer());
  }
  return 0;
}

torch::optim::Optimizer* PreparedOptimizers::numbered(int64_t number) {
  for (const PreparedOptimizer& prepared : live()) {
    if (numbers_.at(&prepared.optimizer()) == number) return &prepared.optimizer();
  }
  return nullptr;
}

void PreparedOptimizers::clear() {
  for (const PreparedOptimizer& prepared : prepared_) forget(prepared.optimizer());
  prepared_.clear();
}

}  // namespace accelerate
