// SGD by torch's fused kernel.
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/empty_like.h>
#include <torch/optim/sgd.h>

#include "optim/grouped_step.h"

namespace accelerate {
namespace {

// The kernel writes the momentum of a first step and mixes that of later ones: two buckets.
constexpr int64_t kFirst = 0;
constexpr int64_t kLater = 1;

class SgdStep final : public GroupedStep {
 public:
  using GroupedStep::GroupedStep;
  const char* name() const override { return "fused"; }

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
    return Entry{.step = kFirst, .state = {at::empty_like(parameter, at::MemoryFormat::Preserve)}};
  }

  void update(TensorBucket& bucket, const torch::optim::OptimizerOptions& options) override {
    const auto& own = static_cast<const Options&>(options);
    at::_fused_sgd_(bucket.parameters, bucket.gradients, bucket.state[0], own.weight_decay(),
                    own.momentum(), own.lr(), own.dampening(), own.nesterov(), /*maximize=*/false,
                    /*is_first_step=*/bucket.step == kFirst);
    if (bucket.step == kFirst) keep_momenta(bucket);
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
};

}  // namespace

std::unique_ptr<OptimizerStep> make_sgd_step(torch::optim::Optimizer& optimizer) {
  return std::make_unique<SgdStep>(optimizer);
}

}  // namespace accelerate
