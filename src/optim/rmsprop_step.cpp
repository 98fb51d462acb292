// RMSprop, for which torch has no fused kernel, by its operators on lists of tensors.
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_addcdiv.h>
#include <ATen/ops/_foreach_addcmul.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_sqrt.h>
#include <torch/optim/rmsprop.h>

#include "optim/grouped_step.h"

namespace accelerate {
namespace {

class RmspropStep final : public GroupedStep {
 public:
  using GroupedStep::GroupedStep;
  const char* name() const override { return "foreach"; }

 private:
  using Options = torch::optim::RMSpropOptions;
  using State = torch::optim::RMSpropParamState;

  std::optional<Entry> enter(const at::Tensor& parameter,
                             const torch::optim::OptimizerOptions& options) override {
    const auto& own = static_cast<const Options&>(options);
    State* state = find_state<State>(parameter);
    if (state == nullptr) {
      State fresh;
      fresh.square_avg(zeros_of(parameter));
      if (own.momentum() > 0) fresh.momentum_buffer(zeros_of(parameter));
      if (own.centered()) fresh.grad_avg(zeros_of(parameter));
      state = &add_state(parameter, std::move(fresh));
    }
    const bool usable = same_layout(state->square_avg(), parameter) &&
                        (own.momentum() <= 0 || same_layout(state->momentum_buffer(), parameter)) &&
                        (!own.centered() || same_layout(state->grad_avg(), parameter));
    if (!usable) return std::nullopt;
    return Entry{
        .step = state->step() + 1,
        .state = {state->square_avg(), own.momentum() > 0 ? state->momentum_buffer() : at::Tensor(),
                  own.centered() ? state->grad_avg() : at::Tensor()},
        .counter = &state->step()};
  }

  void update(TensorBucket& bucket, const torch::optim::OptimizerOptions& options) override {
    const auto& own = static_cast<const Options&>(options);
    const auto& [square_avgs, momenta, gradient_avgs] = bucket.state;
    std::vector<at::Tensor> gradients = std::move(bucket.gradients);
    if (own.weight_decay() != 0) {
      gradients = at::_foreach_add(gradients, bucket.parameters, own.weight_decay());
    }
    at::_foreach_mul_(square_avgs, own.alpha());
    at::_foreach_addcmul_(square_avgs, gradients, gradients, 1 - own.alpha());
    const std::vector<at::Tensor> average = denominator(square_avgs, gradient_avgs, gradients, own);
    if (own.momentum() > 0) {
      at::_foreach_mul_(momenta, own.momentum());
      at::_foreach_addcdiv_(momenta, gradients, average, 1);
      at::_foreach_add_(bucket.parameters, momenta, -own.lr());
    } else {
      at::_foreach_addcdiv_(bucket.parameters, gradients, average, -own.lr());
    }
  }

  static std::vector<at::Tensor> denominator(at::TensorList square_avgs,
                                             at::TensorList gradient_avgs, at::TensorList gradients,
                                             const Options& options) {
    std::vector<at::Tensor> average;
    if (options.centered()) {
      at::_foreach_mul_(gradient_avgs, options.alpha());
      at::_foreach_add_(gradient_avgs, gradients, 1 - options.alpha());
      average = at::_foreach_addcmul(square_avgs, gradient_avgs, gradient_avgs, -1);
      at::_foreach_sqrt_(average);
    } else {
      average = at::_foreach_sqrt(square_avgs);
    }
    at::_foreach_add_(average, options.eps());
    return average;
  }

  bool has_kernel(const at::Tensor& /*parameter*/) override { return true; }
};

}  // namespace

std::unique_ptr<OptimizerStep> make_rmsprop_step(torch::optim::Optimizer& optimizer) {
  return std::make_unique<RmspropStep>(optimizer);
}

}  // namespace accelerate
