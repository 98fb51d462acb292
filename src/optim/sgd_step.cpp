// SGD by torch's fused kernel.
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/empty_like.h>
#include <torch/optim/sgd.h>

#include "device/replay_actions.h"
#include "optim/grouped_step.h"
#include "optim/recorded_scalars.h"

namespace accelerate {
namespace {

// The kernel writes the momentum of a first step and mixes that of later ones: two buckets.
constexpr int64_t kFirst = 0;
constexpr int64_t kLater = 1;

class SgdStep final : public GroupedStep {
 public:
  using GroupedStep::GroupedStep;
  const char* name() const override { return "fused"; }
  bool can_look_on_device() const override { return true; }

 private:
  using Options = torch::optim::SGDOptions;
  using State = torch::optim::SGDParamState;

  std::optional<Entry> enter(const at::Tensor& parameter,
                             const torch::optim::OptimizerOptions& options) override {
    if (static_cast<const Options&>(options).momentum() == 0) return Entry{.step = kLater};
    State* state = find_state<State>(parameter);
    if (state != nullptr && state->momentum_buffer().defined()) {
      if (!same_layout(state->momentum_buffer(), parameter)) return std::nullopt;
      return Entry{.step = kLater, .state = {state->momentum_buffer()}};
    }
    // A first step that the device may leave out must leave momentum that is none. With dampening
    // the step after it is another: then the host looks.
    if (found_inf()) {
      if (static_cast<const Options&>(options).dampening() != 0) return std::nullopt;
      if (state == nullptr) state = &add_state(parameter, State());
      state->momentum_buffer(zeros_of(parameter));
      return Entry{.step = kLater, .state = {state->momentum_buffer()}};
    }
    return Entry{.step = kFirst, .state = {at::empty_like(parameter, at::MemoryFormat::Preserve)}};
  }

  bool recordable() const override { return true; }

  void update(TensorBucket& bucket, const torch::optim::OptimizerOptions& options) override {
    const auto& own = static_cast<const Options&>(options);
    const bool first = bucket.step == kFirst;
    const auto run = [&](const auto& rate) {
      at::_fused_sgd_(bucket.parameters, bucket.gradients, bucket.state[0], own.weight_decay(),
                      own.momentum(), rate, own.dampening(), own.nesterov(), /*maximize=*/false,
                      first, /*grad_scale=*/std::nullopt, found_inf());
    };
    if (auto* actions = device::ReplayActions::current()) {
      if (first) RecordedScalars::refuse_first_step();
      const at::Tensor rate = scalars_.take();
      actions->add_check([this, parameters = bucket.parameters, momenta = bucket.state[0], &own,
                          recorded = Options(own)]() mutable {
        recorded.lr(own.lr());  // read from the device
        return recorded == own && keeps(parameters, momenta);
      });
      actions->add([&own, rate, known = -1.0]() mutable {
        if (known != own.lr()) rate.fill_(own.lr());
        known = own.lr();
      });
      return run(rate);
    }
    scalars_.lay_by(bucket.device, 1);
    run(own.lr());
    if (bucket.step == kFirst) keep_momenta(bucket);
  }

  // Whether these are the momenta of `parameters`, if they have any: a state that was loaded has
  // others.
  bool keeps(const std::vector<at::Tensor>& parameters, const std::vector<at::Tensor>& momenta) {
    for (size_t i = 0; i < momenta.size(); ++i) {
      State* state = find_state<State>(parameters[i]);
      if (state == nullptr || !state->momentum_buffer().is_same(momenta[i])) return false;
    }
    return true;
  }

  // Not before the kernel has written them.
  void keep_momenta(const TensorBucket& bucket) {
    for (size_t i = 0; i < bucket.parameters.size(); ++i) {
      State* state = find_state<State>(bucket.parameters[i]);
      if (state == nullptr) state = &add_state(bucket.parameters[i], State());
      state->momentum_buffer(bucket.state[0][i]);
    }
  }

  bool has_kernel(const at::Tensor& parameter) override {
    return kernels_.has_kernel_for(parameter);
  }

  KernelLookup kernels_{"aten::_fused_sgd_"};
  RecordedScalars scalars_;
};

}  // namespace

std::unique_ptr<OptimizerStep> make_sgd_step(torch::optim::Optimizer& optimizer) {
  return std::make_unique<SgdStep>(optimizer);
}

}  // namespace accelerate
