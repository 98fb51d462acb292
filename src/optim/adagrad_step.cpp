// Adagrad by torch's fused kernel.
#include <ATen/ops/_fused_adagrad.h>
#include <torch/optim/adagrad.h>

#include "optim/grouped_step.h"

namespace accelerate {
namespace {

class AdagradStep final : public GroupedStep {
 public:
  using GroupedStep::GroupedStep;
  const char* name() const override { return "fused"; }

 private:
  using Options = torch::optim::AdagradOptions;
  using State = torch::optim::AdagradParamState;

  // torch makes this state in the constructor; where it is missing, torch itself says so.
  std::optional<Entry> enter(const at::Tensor& parameter,
                             const torch::optim::OptimizerOptions& /*options*/) override {
    State* state = find_state<State>(parameter);
    if (state == nullptr || !same_layout(state->sum(), parameter)) return std::nullopt;
    return Entry{.step = state->step() + 1, .state = {state->sum()}, .counter = &state->step()};
  }

  void update(TensorBucket& bucket, const torch::optim::OptimizerOptions& options) override {
    const auto& own = static_cast<const Options&>(options);
    at::_fused_adagrad_(bucket.parameters, bucket.gradients, bucket.state[0], bucket.step_tensors(),
                        own.lr(), own.lr_decay(), own.weight_decay(), own.eps(),
                        /*maximize=*/false);
  }

  bool has_kernel(const at::Tensor& parameter) override {
    return kernels_.has_kernel_for(parameter);
  }

  KernelLookup kernels_{"aten::_fused_adagrad_"};
};

}  // namespace

std::unique_ptr<OptimizerStep> make_adagrad_step(torch::optim::Optimizer& optimizer) {
  return std::make_unique<AdagradStep>(optimizer);
}

}  // namespace accelerate
