#include "core/scaled_updates.h"

#include <torch/optim/optimizer.h>

#include <algorithm>

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

bool has_any_of(const torch::optim::Optimizer& optimizer,
                const std::vector<at::Tensor>& parameters) {
  std::set<const c10::TensorImpl*> wanted;
  for (const at::Tensor& parameter : parameters) wanted.insert(parameter.unsafeGetTensorImpl());
  return std::ranges::any_of(optimizer.param_groups(), [&](const auto& group) {
    return std::ranges::any_of(group.params(), [&](const at::Tensor& parameter) {
      return wanted.contains(parameter.unsafeGetTensorImpl());
    });
  });
}

}  // namespace accelerate
