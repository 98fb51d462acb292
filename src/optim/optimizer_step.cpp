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
#include "accelerate/flat_parameters.h"
#include "device/replay_actions.h"
#include "optim/grouped_step.h"

namespace accelerate {
namespace {

// Counts on the device, where it also looks.
class FlatStep final : public OptimizerStep {
 public:
  explicit FlatStep(FlatAdamW& optimizer) : optimizer_(optimizer) {}
  at::Tensor step(LossClosure closure) override { return optimizer_.step(std::move(closure)); }
  bool can_look_on_device() const override { return true; }
  void step_unless(const at::Tensor& found_inf) override {
    struct Look {
      Look(FlatAdamW& at, const at::Tensor& found_inf) : optimizer(at) { at.skip_where(found_inf); }
      ~Look() { optimizer.skip_where({}); }
      FlatAdamW& optimizer;
    };
    const Look look(optimizer_, found_inf);
    optimizer_.step();
  }
  const char* name() const override { return "fused"; }

 private:
  FlatAdamW& optimizer_;
};

class OwnStep final : public OptimizerStep {
 public:
  explicit OwnStep(torch::optim::Optimizer& optimizer) : optimizer_(optimizer) {}
  at::Tensor step(LossClosure closure) override {
    if (device::ReplayActions::current() != nullptr) {
      throw UsageError({.what = "the update of this optimizer cannot be part of a CUDA graph",
                        .where = "step",
                        .hint = "use SGD, Adam, AdamW or FlatAdamW"});
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
  if (auto* flat = dynamic_cast<FlatAdamW*>(&optimizer)) return std::make_unique<FlatStep>(*flat);
  const auto known = makers().find(typeid(optimizer));
  if (known == makers().end()) return std::make_unique<OwnStep>(optimizer);
  return known->second(optimizer);
}

}  // namespace accelerate
