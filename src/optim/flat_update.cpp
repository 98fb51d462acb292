#include "optim/flat_update.h"

#include <ATen/ATen.h>

#include <cstdint>

#include "residency/flat_unit.h"

namespace accelerate {
namespace {

// One random number for each element, from the seed, the number of the update and the place of the
// element, by the arithmetic of the kernel. Products of int64 wrap around like those of uint64.
at::Tensor rounding_numbers(int64_t count, const at::Tensor& step, uint64_t seed) {
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
      rounding_numbers(values.numel(), from.step, from.seed).bitwise_and_(0xffff).to(at::kInt);
  const at::Tensor cut = (bits + random).bitwise_and_(static_cast<int64_t>(-65536));
  return at::where(values.isfinite(), cut.view(at::kFloat), values);
}

// What is updated: masters with what was written to the parameters since they were rounded to them.
at::Tensor values_before(const device::FlatAdamWArguments& from) {
  const at::Tensor& master = from.master;
  if (!master.defined()) return from.parameters;
  const at::Tensor rounded = master.to(from.parameters.scalar_type());
  return residency::with_written_values(master, from.parameters, rounded);
}

// The update by operators of libtorch. All scalars stay tensors: nothing waits for a device.
void compose_flat_adamw(const device::FlatAdamWArguments& from) {
  at::Tensor gradient = from.gradient;
  if (from.norm.defined()) {
    gradient = gradient * (from.max_norm / (from.norm + 1e-6)).clamp_max(1.0);
  }
  at::Tensor average = from.exp_avg * from.beta1 + gradient * (1 - from.beta1);
  at::Tensor square = from.exp_avg_sq * from.beta2 + gradient.square() * (1 - from.beta2);
  const at::Tensor before = values_before(from);
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

void flat_adamw_update(const device::FlatAdamWArguments& arguments) {
  if (const auto* kernels = device::kernels_for(arguments.parameters)) {
    kernels->flat_adamw(arguments);
  } else {
    compose_flat_adamw(arguments);
  }
}

at::Tensor flat_gradient_norm(const at::Tensor& gradient) {
  const auto* kernels = device::kernels_for(gradient);
  return kernels != nullptr ? kernels->flat_norm(gradient) : gradient.norm();
}

}  // namespace accelerate
