// Adam and AdamW by torch's fused kernels.
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>

#include "optim/grouped_step.h"

namespace accelerate {
namespace {

struct Adam {
  using Options = torch::optim::AdamOptions;
  using State = torch::optim::AdamParamState;
  static constexpr const char* kOperator = "aten::_fused_adam_";
  template <class... Arguments>
  static void update(const Arguments&... arguments) {
    at::_fused_adam_(arguments...);
  }
};

struct AdamW {
  using Options = torch::optim::AdamWOptions;
  using State = torch::optim::AdamWParamState;
  static constexpr const char* kOperator = "aten::_fused_adamw_";
  template <class... Arguments>
  static void update(const Arguments&... arguments) {
    at::_fused_adamw_(arguments...);
  }
};

template <class Family>
class AdamStep final : public GroupedStep {
 public:
  using GroupedStep::GroupedStep;
  const char* name() const override { return "fused"; }

 private:
  using Options = typename Family::Options;
  using State = typename Family::State;

  std::optional<Entry> enter(const at::Tensor& parameter,
                             const torch::optim::OptimizerOptions& options) override {
    const bool amsgrad = static_cast<const Options&>(options).amsgrad();
    State* state = this->template find_state<State>(parameter);
    if (state == nullptr) {
      State fresh;
      fresh.exp_avg(zeros_of(parameter));
      fresh.exp_avg_sq(zeros_of(parameter));
      if (amsgrad) fresh.max_exp_avg_sq(zeros_of(parameter));
      state = &this->add_state(parameter, std::move(fresh));
    }
    if (!same_layout(state->exp_avg(), parameter) || !same_layout(state->exp_avg_sq(), parameter) ||
        (amsgrad && !same_layout(state->max_exp_avg_sq(), parameter))) {
      return std::nullopt;
    }
    return Entry{.step = state->step() + 1,
                 .state = {state->exp_avg(), state->exp_avg_sq(),
                           amsgrad ? state->max_exp_avg_sq() : at::Tensor()},
                 .counter = &state->step()};
  }

  void update(TensorBucket& bucket, const torch::optim::OptimizerOptions& options) override {
    const auto& own = static_cast<const Options&>(options);
    const auto [beta1, beta2] = own.betas();
    Family::update(bucket.parameters, bucket.gradients, bucket.state[0], bucket.state[1],
                   bucket.state[2], bucket.step_tensors(), own.lr(), beta1, beta2,
                   own.weight_decay(), own.eps(), own.amsgrad(), /*maximize=*/false);
  }

  bool has_kernel(const at::Tensor& parameter) override {
    return kernels_.has_kernel_for(parameter);
  }

  KernelLookup kernels_{Family::kOperator};
};

}  // namespace

std::unique_ptr<OptimizerStep> make_adam_step(torch::optim::Optimizer& optimizer) {
  return std::make_unique<AdamStep<Adam>>(optimizer);
}

std::unique_ptr<OptimizerStep> make_adamw_step(torch::optim::Optimizer& optimizer) {
  return std::make_unique<AdamStep<AdamW>>(optimizer);
}

}  // namespace accelerate
