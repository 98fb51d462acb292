// Adam and AdamW by torch's fused kernels.
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>

#include <array>
#include <utility>
#include <vector>

#include "device/replay_actions.h"
#include "optim/grouped_step.h"
#include "optim/recorded_scalars.h"

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
  bool can_look_on_device() const override { return true; }

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
    if (auto* actions = device::ReplayActions::current()) {
      const at::Tensor rate = scalars_.take();
      const at::Tensor count = scalars_.take();
      // Written from the host only where it is not what the graph itself left there.
      struct OnDevice {
        double rate = -1;
        int64_t count = -1;
      };
      const std::optional<at::Tensor> found = this->found_inf();
      actions->add_check([this, parameters = bucket.parameters, state = bucket.state, &own,
                          recorded = Options(own)]() mutable {
        recorded.lr(own.lr());  // read from the device
        return recorded == own && updates(parameters, state);
      });
      actions->add([this, parameters = bucket.parameters, &own, rate, count,
                    looks = found.has_value(), known = OnDevice()]() mutable {
        const int64_t wanted = counted(parameters);
        if (looks) this->counted_ahead(parameters);
        if (known.rate != own.lr()) rate.fill_(own.lr());
        if (known.count != wanted) count.fill_(wanted);
        known = {.rate = own.lr(), .count = wanted + 1};
      });
      const std::vector<at::Tensor> counts(bucket.parameters.size(), count);
      Family::update(bucket.parameters, bucket.gradients, bucket.state[0], bucket.state[1],
                     bucket.state[2], counts, rate, beta1, beta2, own.weight_decay(), own.eps(),
                     own.amsgrad(), /*maximize=*/false, /*grad_scale=*/std::nullopt,
                     this->found_inf());
      if (found) {
        count.add_(found->eq(0));
      } else {
        count.add_(1);
      }
      return;
    }
    scalars_.lay_by(bucket.device, 2);
    Family::update(bucket.parameters, bucket.gradients, bucket.state[0], bucket.state[1],
                   bucket.state[2], bucket.step_tensors(), own.lr(), beta1, beta2,
                   own.weight_decay(), own.eps(), own.amsgrad(), /*maximize=*/false,
                   /*grad_scale=*/std::nullopt, this->found_inf());
  }

  int64_t* counter_of(const at::Tensor& parameter) override {
    State* state = this->template find_state<State>(parameter);
    return state == nullptr ? nullptr : &state->step();
  }

  // Whether these are the tensors that the optimizer keeps for `parameters`: a state that was
  // loaded has others.
  bool updates(const std::vector<at::Tensor>& parameters,
               const std::array<std::vector<at::Tensor>, TensorBucket::kMostColumns>& tensors) {
    for (size_t i = 0; i < parameters.size(); ++i) {
      State* state = this->template find_state<State>(parameters[i]);
      if (state == nullptr || !state->exp_avg().is_same(tensors[0][i]) ||
          !state->exp_avg_sq().is_same(tensors[1][i]) ||
          (!tensors[2].empty() && !state->max_exp_avg_sq().is_same(tensors[2][i]))) {
        return false;
      }
    }
    return true;
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
  RecordedScalars scalars_;
};

}  // namespace

std::unique_ptr<OptimizerStep> make_adam_step(torch::optim::Optimizer& optimizer) {
  return std::make_unique<AdamStep<Adam>>(optimizer);
}

std::unique_ptr<OptimizerStep> make_adamw_step(torch::optim::Optimizer& optimizer) {
  return std::make_unique<AdamStep<AdamW>>(optimizer);
}

}  // namespace accelerate
