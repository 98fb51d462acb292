#include <ATen/ATen.h>

#include <string>
#include <utility>
#include <vector>

#include "accelerate/errors.h"
#include "accelerate/flat_parameters.h"
#include "device/cuda_kernels.h"
#include "device/replay_actions.h"

namespace accelerate {
namespace {

torch::optim::AdamWOptions torch_options(const FlatAdamWOptions& from) {
  return torch::optim::AdamWOptions(from.lr)
      .betas({from.beta1, from.beta2})
      .eps(from.eps)
      .weight_decay(from.weight_decay);
}

void require_usable(const FlatAdamWOptions& options) {
  const auto is_share = [](double beta) { return beta >= 0 && beta < 1; };
  const char* wrong = !(options.lr >= 0)             ? "lr must be 0 or more"
                      : !is_share(options.beta1)     ? "beta1 must lie between 0 and 1"
                      : !is_share(options.beta2)     ? "beta2 must lie between 0 and 1"
                      : !(options.eps >= 0)          ? "eps must be 0 or more"
                      : !(options.weight_decay >= 0) ? "weight_decay must be 0 or more"
                      : !(options.max_norm >= 0)     ? "max_norm must be 0 or more"
                                                     : nullptr;
  if (wrong != nullptr) throw UsageError({.what = wrong, .where = "FlatAdamWOptions"});
}

// One random number for each element, from the seed, the number of the update and the place of the
// element, by the arithmetic of the kernel. Products of int64 wrap around like those of uint64.
at::Tensor random_numbers(int64_t count, const at::Tensor& step, uint64_t seed) {
  const auto wrapped = [](uint64_t factor) { return static_cast<int64_t>(factor); };
  const auto fold = [](at::Tensor& value) {  // value ^= value >> 33, without sign
    value.bitwise_xor_(value.bitwise_right_shift(33).bitwise_and_((int64_t{1} << 31) - 1));
  };
  const at::Tensor key =
      (step.to(at::kLong) + wrapped(seed)) * wrapped(uint64_t{0x9e3779b97f4a7c15});
  at::Tensor value = at::arange(count, key.options()).bitwise_xor_(key);
  fold(value);
  value.mul_(wrapped(uint64_t{0xff51afd7ed558ccd}));
  fold(value);
  value.mul_(wrapped(uint64_t{0xc4ceb9fe1a85ec53}));
  fold(value);
  return value;
}

// Cuts the lower half of each float off after a random number was added to it.
at::Tensor rounded_by_chance(const at::Tensor& values, const device::FlatAdamWArguments& from) {
  const at::Tensor bits = values.view(at::kInt);
  const at::Tensor random =
      random_numbers(values.numel(), from.step, from.seed).bitwise_and_(0xffff).to(at::kInt);
  const at::Tensor cut = (bits + random).bitwise_and_(static_cast<int64_t>(-65536));
  return at::where(values.isfinite(), cut.view(at::kFloat), values);
}

// The update by operators of libtorch. All scalars stay tensors: nothing waits for a device.
void compose_update(const device::FlatAdamWArguments& from) {
  at::Tensor gradient = from.gradient;
  if (from.norm.defined()) {
    gradient = gradient * (from.max_norm / (from.norm + 1e-6)).clamp_max(1.0);
  }
  at::Tensor average = from.exp_avg * from.beta1 + gradient * (1 - from.beta1);
  at::Tensor square = from.exp_avg_sq * from.beta2 + gradient.square() * (1 - from.beta2);
  const at::Tensor before = from.master.defined() ? from.master : from.parameters;
  at::Tensor master = before.to(at::kFloat, /*non_blocking=*/false, /*copy=*/true);
  master.narrow(0, 0, from.decayed_numel).mul_(1 - from.learning_rate * from.weight_decay);
  const at::Tensor size = from.learning_rate / (1 - at::pow(from.beta1, from.step));
  const at::Tensor root = at::rsqrt(1 - at::pow(from.beta2, from.step));
  master -= size * average / (square.sqrt() * root + from.eps);
  if (from.found_inf.defined()) {
    const at::Tensor skip = from.found_inf.ne(0);
    average = at::where(skip, from.exp_avg, average);
    square = at::where(skip, from.exp_avg_sq, square);
    master = at::where(skip, before.to(at::kFloat), master);
  }
  from.exp_avg.copy_(average);
  from.exp_avg_sq.copy_(square);
  if (from.master.defined()) from.master.copy_(master);
  const bool by_chance = from.stochastic_rounding && from.parameters.scalar_type() == at::kBFloat16;
  from.parameters.copy_(by_chance ? rounded_by_chance(master, from) : master);
}

}  // namespace

FlatAdamW::FlatAdamW(std::shared_ptr<FlatParameters> parameters, const FlatAdamWOptions& options)
    : Optimizer({torch::optim::OptimizerParamGroup(parameters->parameters())},
                std::make_unique<torch::optim::AdamWOptions>(torch_options(options))),
      flat_(std::move(parameters)),
      options_(options),
      learning_rate_on_device_(options.lr) {
  require_usable(options);
  if (options.stochastic_rounding && flat_->values().scalar_type() != at::kBFloat16) {
    throw UsageError({.what = "stochastic rounding is for bfloat16 parameters",
                      .where = "FlatAdamWOptions::stochastic_rounding"});
  }
  exp_avg_ = at::zeros_like(flat_->gradient());
  exp_avg_sq_ = at::zeros_like(flat_->gradient());
  step_ = at::zeros({}, flat_->gradient().options());
  learning_rate_ = at::full({}, options.lr, flat_->gradient().options());
}

void FlatAdamW::refresh_learning_rate() {
  const double wanted =
      static_cast<const torch::optim::AdamWOptions&>(param_groups().at(0).options()).lr();
  if (wanted == learning_rate_on_device_) return;
  learning_rate_.fill_(wanted);
  learning_rate_on_device_ = wanted;
}

at::Tensor FlatAdamW::gradient_norm() const {
  const auto* kernels = device::kernels_for(flat_->values());
  return kernels != nullptr ? kernels->flat_norm(flat_->gradient()) : flat_->gradient().norm();
}

at::Tensor FlatAdamW::step(LossClosure closure) {
  ++step_calls_;
  at::Tensor loss;
  if (closure) {
    const at::AutoGradMode with_gradients(true);
    loss = closure();
  }
  const at::NoGradGuard no_grad;
  flat_->collect_gradients();
  if (auto* actions = device::ReplayActions::current()) {
    const auto present = [this] {
      return static_cast<const torch::optim::AdamWOptions&>(param_groups().at(0).options());
    };
    actions->add_check([present, recorded = present()]() mutable {
      const torch::optim::AdamWOptions options = present();
      recorded.lr(options.lr());  // read from the device
      return recorded == options;
    });
    actions->add([this] { refresh_learning_rate(); });
  } else {
    refresh_learning_rate();
  }
  const auto& own = static_cast<const torch::optim::AdamWOptions&>(param_groups().at(0).options());
  if (found_inf_.defined()) {
    step_.add_(found_inf_.eq(0));
  } else {
    step_.add_(1);
  }
  norm_ = options_.max_norm > 0 ? gradient_norm() : at::Tensor();
  const auto [beta1, beta2] = own.betas();
  const device::FlatAdamWArguments arguments{
      .master = flat_->masters(),
      .parameters = flat_->values(),
      .gradient = flat_->gradient(),
      .exp_avg = exp_avg_,
      .exp_avg_sq = exp_avg_sq_,
      .decayed_numel = flat_->matrix_numel(),
      .learning_rate = learning_rate_,
      .step = step_,
      .norm = norm_,
      .found_inf = found_inf_,
      .max_norm = options_.max_norm,
      .beta1 = beta1,
      .beta2 = beta2,
      .eps = own.eps(),
      .weight_decay = own.weight_decay(),
      .stochastic_rounding = options_.stochastic_rounding,
      .seed = options_.seed,
  };
  const auto* kernels = device::kernels_for(flat_->values());
  if (kernels != nullptr) {
    kernels->flat_adamw(arguments);
  } else {
    compose_update(arguments);
  }
  return loss;
}

int64_t FlatAdamW::steps() const { return step_.to(at::kLong).item<int64_t>(); }

StateDict FlatAdamW::state_dict() const {
  const auto& own = static_cast<const torch::optim::AdamWOptions&>(param_groups().at(0).options());
  StateDict state;
  if (flat_->masters().defined()) state.set("masters", flat_->masters());
  // Masters alone do not say which way chance has rounded.
  if (!flat_->masters().defined() || options_.stochastic_rounding) {
    state.set("values", flat_->values());
  }
  state.set("exp_avg", exp_avg_);
  state.set("exp_avg_sq", exp_avg_sq_);
  state.set("step", step_);
  state.set("lr", own.lr());
  return state;
}

void FlatAdamW::load_state_dict(const StateDict& state) {
  const StateDict present = state_dict();
  const bool has_masters = flat_->masters().defined();
  bool rounds_masters = has_masters;
  std::vector<std::pair<at::Tensor, at::Tensor>> copies;
  for (const auto& [name, value] : present.entries()) {
    if (name == "lr") continue;
    if (name == "values") {
      if (has_masters && !state.contains(name))
        continue;  // of an optimizer that rounded to nearest
      rounds_masters = false;
    }
    const at::Tensor& to = value.as_tensor();
    const at::Tensor& from = state.at(name).as_tensor();
    if (from.sizes() != to.sizes() || from.scalar_type() != to.scalar_type()) {
      throw CheckpointError({.what = "\"" + name + "\" holds " + std::to_string(from.numel()) +
                                     " " + c10::toString(from.scalar_type()) +
                                     ", the optimizer has " + std::to_string(to.numel()) + " " +
                                     c10::toString(to.scalar_type()),
                             .where = "FlatAdamW::load_state_dict",
                             .hint = "make the model and its FlatParameters as they were saved"});
    }
    copies.emplace_back(to, from);
  }
  const double rate = state.at("lr").as_number();
  const at::NoGradGuard no_grad;
  for (const auto& [to, from] : copies) to.detach().copy_(from);
  param_groups().at(0).options().set_lr(rate);
  if (rounds_masters) flat_->refresh_from_masters();
}

}  // namespace accelerate
