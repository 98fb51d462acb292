// An optimizer of parameters that live in flat units.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "accelerate/strategy.h"
#include "optim/flat_step.h"
#include "residency/flat_unit.h"

namespace accelerate {

// The units of one strategy; some may be gone. Shared by the strategy and its optimizers.
using KnownFlatUnits = std::vector<std::weak_ptr<residency::FlatUnit>>;

// Puts the masters into the groups of the optimizer, in place of the user's parameters, by which
// the rest of the library goes on to know it.
class FlatOptimizer final : public OptimizerStrategy {
 public:
  // Throws UsageError if the optimizer cannot train these units. `before_update` may throw where
  // gradients are not fit for an update of these parameters.
  FlatOptimizer(torch::optim::Optimizer& optimizer, std::shared_ptr<const KnownFlatUnits> known,
                std::function<void(const std::vector<at::Tensor>&)> before_update);
  ~FlatOptimizer() override;

  std::vector<at::Tensor> parameters() const override;
  void before_step() override;
  void after_step() override;
  void drop_gradients(bool set_to_none) override;
  void parameters_loaded() override;
  std::unique_ptr<OptimizerStep> make_step() override;

 private:
  class Watch;

  // Of its parameters, by unit.
  std::vector<std::vector<size_t>> own_indices() const;

  std::shared_ptr<const KnownFlatUnits> known_;
  std::function<void(const std::vector<at::Tensor>&)> before_update_;
  FlatUnits units_;  // of its parameters
  std::shared_ptr<Watch> watch_;
};

// What zero_grad() of `parameters` does, some of which may live in `units`.
void drop_flat_gradients(const FlatUnits& units, at::TensorList parameters, bool set_to_none);

}  // namespace accelerate
