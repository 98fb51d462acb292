#include "core/scaled_updates.h"

#include <ATen/ops/scalar_tensor.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <utility>

#include "accelerate/errors.h"
#include "device/replay_actions.h"
#include "tensor/optimizer_parameters.h"

namespace accelerate {

void GradientMarks::add(const std::vector<at::Tensor>& parameters) {
  for (const at::Tensor& parameter : parameters) {
    const at::Tensor& gradient = parameter.grad();
    marks_.push_back({.parameter = parameter,
                      .gradient = gradient.unsafeGetTensorImpl(),
                      .version = gradient.defined() ? gradient._version() : 0});
  }
}

std::vector<at::Tensor> GradientMarks::changed() const {
  std::vector<at::Tensor> changed;
  for (const Mark& mark : marks_) {
    const at::Tensor& gradient = mark.parameter.grad();
    if (!gradient.defined()) continue;
    if (gradient.unsafeGetTensorImpl() == mark.gradient && gradient._version() == mark.version) {
      continue;
    }
    changed.push_back(mark.parameter);
  }
  return changed;
}

void ScaledUpdates::add_pieces(const torch::optim::Optimizer& optimizer,
                               std::function<std::vector<at::Tensor>()> parameters) {
  pieces_.push_back({.optimizer = &optimizer, .parameters = std::move(parameters)});
}

const ScaledUpdates::Pieces* ScaledUpdates::find_pieces(
    const torch::optim::Optimizer& optimizer) const {
  const auto found = std::ranges::find(pieces_, &optimizer, &Pieces::optimizer);
  return found == pieces_.end() ? nullptr : &*found;
}

void ScaledUpdates::forget(const torch::optim::Optimizer& optimizer) {
  discard(optimizer);
  std::erase_if(pieces_, [&](const Pieces& pieces) { return pieces.optimizer == &optimizer; });
}

std::vector<at::Tensor> ScaledUpdates::trained_by(const torch::optim::Optimizer& optimizer) const {
  const Pieces* pieces = find_pieces(optimizer);
  return pieces == nullptr ? parameters_of(optimizer) : pieces->parameters();
}

bool ScaledUpdates::has_gradients_anywhere(const torch::optim::Optimizer& optimizer) const {
  const bool has_own = std::ranges::any_of(trained_by(optimizer), [](const at::Tensor& parameter) {
    return parameter.grad().defined();
  });
  if (!trains_pieces(optimizer)) return has_own;
  at::Tensor count = at::scalar_tensor(static_cast<int64_t>(has_own), at::kLong);
  ranks_->all_reduce(count, ReduceOp::kMax);
  return count.item<int64_t>() != 0;
}

at::Tensor ScaledUpdates::scale(const at::Tensor& loss) {
  // Dropped without the library being asked, by net->zero_grad() on the user's own module.
  const auto waiting = unscaled_;
  for (const torch::optim::Optimizer* optimizer : waiting) {
    if (!trains_pieces(*optimizer) && !has_gradients(*optimizer)) discard(*optimizer);
  }
  for (const Pieces& pieces : pieces_) {
    if (!waiting.contains(pieces.optimizer)) continue;
    if (!has_gradients_anywhere(*pieces.optimizer)) discard(*pieces.optimizer);
  }
  end_iteration("backward");
  has_scaled_ = true;
  return scaler_.scale(loss);
}

void ScaledUpdates::unscale(torch::optim::Optimizer& optimizer) {
  if (stepped_.contains(&optimizer) || scaler_.is_unscaled(optimizer)) return;
  // Those that a later pass brings are scaled.
  if (!has_gradients_anywhere(optimizer)) return;
  if (trains_pieces(optimizer)) {
    scaler_.unscale_(optimizer, trained_by(optimizer), [this](at::Tensor& found_inf) {
      ranks_->all_reduce(found_inf, ReduceOp::kMax);
    });
  } else {
    scaler_.unscale_(optimizer);
  }
  unscaled_.insert(&optimizer);
}

void ScaledUpdates::require_first_step(const torch::optim::Optimizer& optimizer) {
  if (!stepped_.contains(&optimizer)) return;
  if (has_gradients_anywhere(optimizer)) {
    throw UsageError({.what = "this optimizer has already stepped with these gradients",
                      .where = "step",
                      .hint = "run Accelerator::backward before the next step()"});
  }
  end_iteration("step");
}

bool ScaledUpdates::is_pending(const torch::optim::Optimizer& optimizer) const {
  return std::ranges::any_of(
      pending_, [&](const Pending& pending) { return pending.optimizer == &optimizer; });
}

bool ScaledUpdates::step_on_device(torch::optim::Optimizer& optimizer,
                                   const std::function<void(const at::Tensor& found_inf)>& update,
                                   std::function<void(bool skipped)> ended) {
  if (!scaler_.enabled() || !scaler_.on_device()) return false;
  auto* actions = device::ReplayActions::current();
  const auto settle_last = [this, key = &optimizer] {
    if (is_pending(*key)) settle();
  };
  if (actions == nullptr) {
    settle_last();
  } else {
    actions->add(settle_last);  // before what the update itself leaves there
  }
  require_first_step(optimizer);
  const at::Tensor found_inf = scaler_.step_on_device(optimizer, update);
  unscaled_.erase(&optimizer);
  stepped_.insert(&optimizer);
  auto await = [this, key = &optimizer, found_inf, ended = std::move(ended)] {
    pending_.push_back(
        {.optimizer = key, .found_inf = device::HostCopy(found_inf), .ended = ended});
  };
  if (actions == nullptr) {
    await();
  } else {
    actions->add_after(std::move(await));
  }
  return true;
}

void ScaledUpdates::settle() {
  const std::vector<Pending> pending = std::exchange(pending_, {});
  const std::vector<std::function<void()>> deferred = std::exchange(deferred_, {});
  for (const Pending& update : pending) update.ended(update.found_inf.value() != 0);
  for (const auto& then : deferred) then();
}

void ScaledUpdates::when_known(std::function<void()> then) {
  if (pending_.empty()) return then();
  deferred_.push_back(std::move(then));
}

void ScaledUpdates::abandon() {
  unscaled_.clear();
  stepped_.clear();
  scaler_.abandon();
}

bool ScaledUpdates::step(torch::optim::Optimizer& optimizer, const std::function<void()>& update) {
  if (device::ReplayActions::current() != nullptr) {
    throw UsageError({.what = "the host decides about the updates of this optimizer under fp16",
                      .where = "step",
                      .hint = "use SGD, Adam or AdamW"});
  }
  // Before the first loss there is no scale, and without gradients none is needed.
  if (!has_scaled_ && !has_gradients_anywhere(optimizer)) {
    update();
    return true;
  }
  require_first_step(optimizer);
  const bool updated = scaler_.step(optimizer, update);
  unscaled_.erase(&optimizer);
  stepped_.insert(&optimizer);
  return updated;
}

void ScaledUpdates::discard(const torch::optim::Optimizer& optimizer) {
  // What they overflowed still counts when the scale is adapted.
  if (unscaled_.erase(&optimizer) != 0) stepped_.insert(&optimizer);
}

void ScaledUpdates::discard_if_within(const torch::optim::Optimizer& optimizer,
                                      const std::vector<at::Tensor>& own,
                                      const std::vector<at::Tensor>& parameters) {
  if (!unscaled_.contains(&optimizer)) return;
  std::set<const void*> within;
  for (const at::Tensor& parameter : parameters) within.insert(parameter.unsafeGetTensorImpl());
  const bool all = std::ranges::all_of(own, [&](const at::Tensor& parameter) {
    return !parameter.grad().defined() || within.contains(parameter.unsafeGetTensorImpl());
  });
  if (all) discard(optimizer);
}

void ScaledUpdates::reset() {
  settle();
  stepped_.merge(unscaled_);
  unscaled_.clear();
  end_iteration("reset");
}

GradScaler& ScaledUpdates::scaler() {
  finish_iteration();
  return scaler_;
}

void ScaledUpdates::end_iteration(const char* where) {
  if (stepped_.empty()) return;
  // To adapt the scale now would have their gradients divided by it once more.
  if (!unscaled_.empty()) {
    throw UsageError(
        {.what =
             "one optimizer has stepped while the unscaled gradients of another have not been used",
         .where = where,
         .hint = "call step() or zero_grad() of every optimizer whose gradients were "
                 "clipped or unscaled, then go on"});
  }
  scaler_.update();
  stepped_.clear();
}

bool has_any_of(const std::vector<at::Tensor>& own, at::TensorList parameters) {
  std::set<const c10::TensorImpl*> wanted;
  for (const at::Tensor& parameter : parameters) wanted.insert(parameter.unsafeGetTensorImpl());
  return std::ranges::any_of(own, [&](const at::Tensor& parameter) {
    return wanted.contains(parameter.unsafeGetTensorImpl());
  });
}

}  // namespace accelerate
