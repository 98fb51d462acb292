#include "core/scaled_updates.h"

namespace accelerate {

at::Tensor ScaledUpdates::scale(const at::Tensor& loss) {
  end_iteration();
  return scaler_.scale(loss);
}

void ScaledUpdates::unscale(torch::optim::Optimizer& optimizer) {
  if (stepped_.contains(&optimizer) || scaler_.is_unscaled(optimizer)) return;
  scaler_.unscale_(optimizer);
}

bool ScaledUpdates::step(torch::optim::Optimizer& optimizer, const std::function<void()>& update) {
  if (stepped_.contains(&optimizer)) end_iteration();
  const bool updated = scaler_.step(optimizer, update);
  stepped_.insert(&optimizer);
  return updated;
}

GradScaler& ScaledUpdates::scaler() {
  end_iteration();
  return scaler_;
}

void ScaledUpdates::end_iteration() {
  if (stepped_.empty()) return;
  scaler_.update();
  stepped_.clear();
}

}  // namespace accelerate
