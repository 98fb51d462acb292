// Adam and AdamW by torch's fused kernels.
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/empty.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>

#include <utility>
#include <vector>

#include "accelerate/errors.h"
#include "compat/replay_actions.h"
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

  bool recordable() const override { return true; }

  void update(TensorBucket& bucket, const torch::optim::OptimizerOptions& options) override {
    const auto& own = static_cast<const Options&>(options);
    const auto [beta1, beta2] = own.betas();
    if (auto* actions = compat::ReplayActions::current()) {
      if (spare_scalars_.empty()) {
        throw UsageError({.what = "the optimizer made no step before the one that is recorded",
                          .where = "step",
                          .hint = "let all parameters have gradients in every step"});
      }
      const at::Tensor rate = spare_scalars_.back().first;
      const at::Tensor count = spare_scalars_.back().second;
      spare_scalars_.pop_back();
      // Written from the host only where it is not what the graph itself left there.
      struct OnDevice {
        double rate = -1;
        int64_t count = -1;
      };
      actions->add(
          [this, parameters = bucket.parameters, &own, rate, count, known = OnDevice()]() mutable {
            const int64_t wanted = counted(parameters);
            if (known.rate != own.lr()) rate.fill_(own.lr());
            if (known.count != wanted) count.fill_(wanted);
            known = {.rate = own.lr(), .count = wanted + 1};
          });
      const std::vector<at::Tensor> counts(bucket.parameters.size(), count);
      Family::update(bucket.parameters, bucket.gradients, bucket.state[0], bucket.state[1],
                     bucket.state[2], counts, rate, beta1, beta2, own.weight_decay(), own.eps(),
                     own.amsgrad(), /*maximize=*/false);
      count.add_(1);
      return;
    }
    if (compat::KeptGradients::active() && spare_scalars_.size() < kMostSpares) {
      const auto options_of = at::TensorOptions(at::kFloat).device(bucket.device);
      spare_scalars_.emplace_back(at::empty({}, options_of), at::empty({}, options_of));
    }
    Family::update(bucket.parameters, bucket.gradients, bucket.state[0], bucket.state[1],
                   bucket.state[2], bucket.step_tensors(), own.lr(), beta1, beta2,
                   own.weight_decay(), own.eps(), own.amsgrad(), /*maximize=*/false);
  }

  // Counts an update in the states of all `parameters`, which have the same count; returns it.
  int64_t counted(const std::vector<at::Tensor>& parameters) {
    int64_t count = 0;
    for (const at::Tensor& parameter : parameters) {
      State* state = this->template find_state<State>(parameter);
      state->step(state->step() + 1);
      count = state->step();
    }
    return count;
  }

  bool has_kernel(const at::Tensor& parameter) override {
    return kernels_.has_kernel_for(parameter);
  }

  KernelLookup kernels_{Family::kOperator};
  // Rate and count for graphs to come, made in the steps that warm up: memory taken while a graph
  // is recorded is also that of its earlier tensors, which would overwrite what the host put there.
  static constexpr size_t kMostSpares = 8;
  std::vector<std::pair<at::Tensor, at::Tensor>> spare_scalars_;
};

}  // namespace

std::unique_ptr<OptimizerStep> make_adam_step(torch::optim::Optimizer& optimizer) {
  return std::make_unique<AdamStep<Adam>>(optimizer);
}

std::unique_ptr<OptimizerStep> make_adamw_step(torch::optim::Optimizer& optimizer) {
  return std::make_unique<AdamStep<AdamW>>(optimizer);
}

}  // namespace accelerate
