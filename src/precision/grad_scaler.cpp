#include "accelerate/grad_scaler.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/_amp_update_scale.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/where.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "accelerate/errors.h"
#include "device/replay_actions.h"
#include "tensor/gradient_values.h"
#include "tensor/optimizer_parameters.h"

namespace accelerate {
namespace {

constexpr const char* kUnscale = "GradScaler::unscale_";

[[noreturn]] void refuse(std::string what, const char* where, std::string hint) {
  throw UsageError({.what = std::move(what), .where = where, .hint = std::move(hint)});
}

void require_usable(const GradScalerOptions& options) {
  constexpr const char* kWhere = "GradScalerOptions";
  if (!(options.init_scale > 0) || !std::isfinite(options.init_scale)) {
    refuse("init_scale must be positive", kWhere, "leave it out for the default of 65536");
  }
  if (!(options.growth_factor > 1)) {
    refuse("growth_factor must be more than 1", kWhere, "leave it out for the default of 2");
  }
  if (!(options.backoff_factor > 0 && options.backoff_factor < 1)) {
    refuse("backoff_factor must lie between 0 and 1", kWhere,
           "leave it out for the default of 0.5");
  }
  if (options.hysteresis < 1) {
    refuse("hysteresis must be 1 or more", kWhere,
           "leave it out: every overflow shrinks the scale");
  }
  if (!(options.min_scale >= 0) || !std::isfinite(options.min_scale)) {
    refuse("min_scale must not be below 0", kWhere, "leave it out for no limit");
  }
  if (options.growth_interval < 1) {
    refuse("growth_interval must be 1 or more", kWhere, "leave it out for the default of 2000");
  }
}

// Copies of one scalar on the devices that ask for it.
class OnDevices {
 public:
  explicit OnDevices(at::Tensor scalar) { copies_.emplace(scalar.device(), std::move(scalar)); }
  at::Tensor& on(c10::Device device) {
    const auto found = copies_.find(device);
    if (found != copies_.end()) return found->second;
    return copies_.emplace(device, brought_to(device, copies_.begin()->second)).first->second;
  }
  // The sum of all copies, on `device`.
  at::Tensor sum_on(c10::Device device) const {
    at::Tensor sum;
    for (const auto& [where, copy] : copies_) {
      const at::Tensor here = brought_to(device, copy);
      sum = sum.defined() ? sum + here : here;
    }
    return sum;
  }

 private:
  struct ByName {
    bool operator()(c10::Device a, c10::Device b) const {
      return std::pair(a.type(), a.index()) < std::pair(b.type(), b.index());
    }
  };
  std::map<c10::Device, at::Tensor, ByName> copies_;
};

}  // namespace

GradScaler::GradScaler(const GradScalerOptions& options)
    : options_(options),
      initial_scale_(options.init_scale),
      initial_hysteresis_tracker_(options.hysteresis) {
  if (options.enabled) require_usable(options);
}

at::Tensor GradScaler::scale(const at::Tensor& loss) {
  if (!options_.enabled) return loss;
  if (!scale_.defined()) {
    const auto on_device = at::TensorOptions().device(loss.device());
    scale_ = at::full({}, initial_scale_, on_device.dtype(at::kFloat));
    growth_tracker_ = at::full({}, initial_growth_tracker_, on_device.dtype(at::kInt));
    hysteresis_tracker_ = at::full({}, initial_hysteresis_tracker_, on_device.dtype(at::kInt));
  }
  return loss * brought_to(loss.device(), scale_);
}

void GradScaler::require_scale(const char* where) const {
  if (scale_.defined()) return;
  refuse("no loss was scaled yet, so these gradients are not scaled", where,
         "call accelerator.backward(loss) instead of loss.backward(); with a scaler of your own, "
         "run backward from scaler.scale(loss)");
}

at::Tensor GradScaler::unscale_gradients(const std::vector<at::Tensor>& parameters) const {
  const at::NoGradGuard no_grad;
  // The reciprocal in double: that of a float may be off by a bit.
  OnDevices inverse(scale_.to(at::kDouble).reciprocal().to(at::kFloat));
  OnDevices found_inf(at::full({}, 0.0, scale_.options()));
  std::map<std::tuple<c10::DeviceType, c10::DeviceIndex, at::ScalarType>, std::vector<at::Tensor>>
      alike;
  for (at::Tensor& gradient : distinct_gradients(parameters)) {
    if (gradient.scalar_type() == at::kHalf) {
      refuse("gradients in half precision cannot be unscaled", kUnscale,
             "keep the parameters in float32: autocast converts them where it is safe");
    }
    alike[{gradient.device().type(), gradient.device().index(), gradient.scalar_type()}].push_back(
        std::move(gradient));
  }
  for (const auto& [key, gradients] : alike) {
    const c10::Device device = gradients.front().device();
    at::_amp_foreach_non_finite_check_and_unscale_(gradients, found_inf.on(device),
                                                   inverse.on(device));
  }
  return found_inf.sum_on(scale_.device());
}

void GradScaler::unscale_(torch::optim::Optimizer& optimizer) {
  if (!options_.enabled) return;
  require_scale(kUnscale);
  // Gradients that come later are scaled: they must not pass for unscaled ones.
  if (!iteration_.contains(&optimizer) && !has_gradients(optimizer)) return;
  require_first_unscale(optimizer);
  iteration_[&optimizer] = {.stage = Stage::kUnscaled,
                            .found_inf = unscale_gradients(parameters_of(optimizer))};
}

void GradScaler::unscale_(torch::optim::Optimizer& optimizer,
                          const std::vector<at::Tensor>& parameters,
                          const std::function<void(at::Tensor& found_inf)>& agree) {
  if (!options_.enabled) return;
  require_scale(kUnscale);
  require_first_unscale(optimizer);
  at::Tensor found_inf = unscale_gradients(parameters);
  agree(found_inf);
  iteration_[&optimizer] = {.stage = Stage::kUnscaled, .found_inf = found_inf};
}

void GradScaler::require_first_unscale(const torch::optim::Optimizer& optimizer) const {
  const auto found = iteration_.find(&optimizer);
  if (found == iteration_.end()) return;
  refuse(found->second.stage == Stage::kUnscaled
             ? "the gradients of this optimizer are already unscaled"
             : "this optimizer has already stepped",
         kUnscale, "unscale once before step(), and update() after it");
}

bool GradScaler::is_unscaled(const torch::optim::Optimizer& optimizer) const {
  return iteration_.contains(&optimizer);
}

GradScaler::OptimizerState& GradScaler::before_step(torch::optim::Optimizer& optimizer) {
  constexpr const char* kWhere = "GradScaler::step";
  require_scale(kWhere);
  const auto found = iteration_.find(&optimizer);
  if (found != iteration_.end() && found->second.stage == Stage::kStepped) {
    refuse("this optimizer has already stepped", kWhere, "call update() after each step");
  }
  if (found != iteration_.end()) return found->second;
  return iteration_[&optimizer] = {.stage = Stage::kUnscaled,
                                   .found_inf = unscale_gradients(parameters_of(optimizer))};
}

bool GradScaler::step(torch::optim::Optimizer& optimizer,
                      const std::function<void()>& update_parameters) {
  if (!options_.enabled) {
    update_parameters();
    return true;
  }
  OptimizerState& state = before_step(optimizer);
  const bool overflow = state.found_inf.item<float>() != 0;
  if (!overflow) update_parameters();
  state.stage = Stage::kStepped;
  found_at_last_step_[&optimizer] = state.found_inf;
  return !overflow;
}

at::Tensor GradScaler::step_on_device(
    torch::optim::Optimizer& optimizer,
    const std::function<void(const at::Tensor& found_inf)>& update) {
  OptimizerState& state = before_step(optimizer);
  update(state.found_inf);
  state.stage = Stage::kStepped;
  found_at_last_step_[&optimizer] = state.found_inf;
  return state.found_inf;
}

bool GradScaler::step(torch::optim::Optimizer& optimizer) {
  return step(optimizer, [&] { optimizer.step(); });
}

bool GradScaler::step_was_skipped(const torch::optim::Optimizer& optimizer) const {
  const auto found = found_at_last_step_.find(&optimizer);
  return found != found_at_last_step_.end() && found->second.item<float>() != 0;
}

void GradScaler::update() {
  if (!options_.enabled) return;
  if (iteration_.empty()) {
    refuse("no optimizer was stepped since the last update()", "GradScaler::update",
           "call step(optimizer) first");
  }
  at::Tensor found_inf;
  for (const auto& [optimizer, state] : iteration_) {
    found_inf = found_inf.defined() ? found_inf + state.found_inf : state.found_inf;
  }
  if (auto* actions = device::ReplayActions::current()) {
    actions->add_check([this, recorded = options_] {
      return recorded.growth_factor == options_.growth_factor &&
             recorded.backoff_factor == options_.backoff_factor &&
             recorded.growth_interval == options_.growth_interval;
    });
  }
  if (!options_.adapts) {
    // It stays as it is.
  } else if (options_.hysteresis == 1 && options_.min_scale == 0) {
    at::_amp_update_scale_(scale_, growth_tracker_, found_inf, options_.growth_factor,
                           options_.backoff_factor, options_.growth_interval);
  } else {
    adapt_slowly(found_inf);
  }
  iteration_.clear();
}

// As DeepSpeed adapts its scale. On the device: nothing waits for it.
void GradScaler::adapt_slowly(const at::Tensor& found_inf) {
  const at::NoGradGuard no_grad;
  const at::Tensor overflow = found_inf > 0;
  const at::Tensor shrinks = overflow.logical_and(hysteresis_tracker_ <= 1);
  const at::Tensor smaller = (scale_ * options_.backoff_factor).clamp_min(options_.min_scale);
  growth_tracker_.add_(1).masked_fill_(overflow, 0);
  const at::Tensor larger = scale_ * options_.growth_factor;
  const at::Tensor grows =
      (growth_tracker_ >= options_.growth_interval).logical_and(larger.isfinite());
  growth_tracker_.masked_fill_(grows, 0);
  hysteresis_tracker_.sub_(overflow.logical_and(shrinks.logical_not()).to(at::kInt));
  const at::Tensor starts_over =
      options_.overflows_in_a_row ? grows.logical_or(overflow.logical_not()) : grows;
  hysteresis_tracker_.masked_fill_(starts_over, options_.hysteresis);
  scale_.copy_(at::where(shrinks, smaller, at::where(grows, larger, scale_)));
}

void GradScaler::update(double new_scale) {
  if (!options_.enabled) return;
  if (!(new_scale > 0) || !std::isfinite(new_scale)) {
    refuse("the new scale must be positive", "GradScaler::update", "leave it out to let it adapt");
  }
  initial_scale_ = new_scale;
  if (scale_.defined()) scale_.fill_(new_scale);
  iteration_.clear();
}

double GradScaler::scale_factor() const {
  if (!options_.enabled) return 1;
  return scale_.defined() ? static_cast<double>(scale_.item<float>()) : initial_scale_;
}

int64_t GradScaler::growth_tracker() const {
  return growth_tracker_.defined() ? growth_tracker_.item<int>() : initial_growth_tracker_;
}

StateDict GradScaler::state_dict() const {
  if (!options_.enabled) return {};
  StateDict state = {{"scale", scale_factor()},
                     {"growth_factor", options_.growth_factor},
                     {"backoff_factor", options_.backoff_factor},
                     {"growth_interval", options_.growth_interval},
                     {"_growth_tracker", growth_tracker()}};
  if (options_.hysteresis > 1) {
    state.set("_hysteresis_tracker", hysteresis_tracker_.defined()
                                         ? static_cast<int64_t>(hysteresis_tracker_.item<int>())
                                         : initial_hysteresis_tracker_);
  }
  return state;
}

void GradScaler::load_state_dict(const StateDict& state) {
  if (!options_.enabled) return;
  GradScalerOptions loaded = options_;
  loaded.init_scale = state.at("scale").as_number();
  loaded.growth_factor = state.at("growth_factor").as_number();
  loaded.backoff_factor = state.at("backoff_factor").as_number();
  loaded.growth_interval = state.at("growth_interval").as_integer();
  const int64_t growth_tracker = state.at("_growth_tracker").as_integer();
  const StateValue* saved_hysteresis = state.find("_hysteresis_tracker");
  const int64_t hysteresis_tracker =
      saved_hysteresis != nullptr ? saved_hysteresis->as_integer() : options_.hysteresis;
  try {
    require_usable(loaded);
    if (growth_tracker < 0 || growth_tracker > std::numeric_limits<int32_t>::max()) {
      refuse("_growth_tracker is " + std::to_string(growth_tracker), "GradScaler", "");
    }
    if (hysteresis_tracker < 0 || hysteresis_tracker > std::numeric_limits<int32_t>::max()) {
      refuse("_hysteresis_tracker is " + std::to_string(hysteresis_tracker), "GradScaler", "");
    }
  } catch (const UsageError& error) {
    throw CheckpointError(
        {.what = "the state of the gradient scaler is out of range: " + error.message(),
         .where = "GradScaler::load_state_dict",
         .hint = "load a state that a GradScaler has saved"});
  }
  initial_scale_ = std::exchange(loaded.init_scale, options_.init_scale);
  initial_growth_tracker_ = growth_tracker;
  initial_hysteresis_tracker_ = hysteresis_tracker;
  options_ = loaded;
  if (scale_.defined()) {
    scale_.fill_(initial_scale_);
    growth_tracker_.fill_(initial_growth_tracker_);
    hysteresis_tracker_.fill_(initial_hysteresis_tracker_);
  }
  iteration_.clear();
}

}  // namespace accelerate
