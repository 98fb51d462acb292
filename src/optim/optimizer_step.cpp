#include "optim/optimizer_step.h"

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <typeindex>
#include <unordered_map>
#include <utility>

#include "accelerate/errors.h"
#include "device/replay_actions.h"
#include "optim/grouped_step.h"

namespace accelerate {
namespace {

class OwnStep final : public OptimizerStep {
 public:
  explicit OwnStep(torch::optim::Optimizer& optimizer) : optimizer_(optimizer) {}
  at::Tensor step(LossClosure closure) override {
    if (device::ReplayActions::current() != nullptr) {
      throw UsageError({.what = "the update of this optimizer cannot be part of a CUDA graph",
                        .where = "step",
                        .hint = "use SGD, Adam or AdamW"});
    }
    return optimizer_.step(std::move(closure));
  }
  const char* name() const override { return "own"; }

 private:
  torch::optim::Optimizer& optimizer_;
};

using Maker = std::unique_ptr<OptimizerStep> (*)(torch::optim::Optimizer&);

const std::unordered_map<std::type_index, Maker>& makers() {
  static const std::unordered_map<std::type_index, Maker> table{
      {typeid(torch::optim::Adam), make_adam_step},
      {typeid(torch::optim::AdamW), make_adamw_step},
      {typeid(torch::optim::SGD), make_sgd_step},
      {typeid(torch::optim::Adagrad), make_adagrad_step},
      {typeid(torch::optim::RMSprop), make_rmsprop_step}};
  return table;
}

}  // namespace

void OptimizerStep::step_unless(const at::Tensor& /*found_inf*/) {
  throw UsageError(
      {.what = "this update cannot decide on the device whether to run", .where = "step_unless"});
}

std::unique_ptr<OptimizerStep> make_optimizer_step(torch::optim::Optimizer& optimizer) {
  const auto known = makers().find(typeid(optimizer));
  if (known == makers().end()) return std::make_unique<OwnStep>(optimizer);
  return known->second(optimizer);
}

}  // namespace accelerate
