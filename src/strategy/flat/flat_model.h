// One model whose parameters live in a flat unit.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "accelerate/communicator.h"
#include "accelerate/ddp.h"
#include "accelerate/strategy.h"
#include "residency/flat_unit.h"
#include "strategy/ddp/exchanged_model.h"
#include "strategy/ddp/model_passes.h"
#include "strategy/flat/unit_reducer.h"

namespace torch::nn {
class Module;
}

namespace accelerate::device {
class ReplayActions;
}

namespace accelerate {

// Alone or as one of equal replicas, which average their gradients.
class FlatModel final : public ModelStrategy, public ExchangedModel {
 public:
  // On several ranks all hold the same values already. Not collective.
  FlatModel(std::shared_ptr<torch::nn::Module> module, std::shared_ptr<residency::FlatUnit> unit,
            std::shared_ptr<Communicator> ranks, const DdpOptions& options);

  void before_backward(const at::Tensor& loss) override;
  void after_backward() override;
  void set_gradient_sync(GradientSync sync) override;
  void sync_next_backward() override { sync_next_ = true; }
  void release() override;
  bool usable() const override { return !unit_->is_released() && !in_backward_; }
  at::Tensor master_of(const at::Tensor& tensor) const override;
  void masters_changed() override;

  const std::shared_ptr<residency::FlatUnit>& unit() const { return unit_; }
  const torch::nn::Module& module() const override { return *module_; }
  bool equalizes(const at::Tensor& parameter) const override {
    return unit_->find(parameter).has_value();
  }
  // Null on one process, and once it was released.
  const UnitReducer* reducer() const { return reducer_.get(); }

  int64_t reduced_passes() const override { return reduced_passes_; }
  bool is_replicated() const override { return reducer_ != nullptr && averages(); }

  // Whether the next pass reaches no other model that averages its gradients.
  void set_alone(bool is_alone) { is_alone_ = is_alone; }

  // Throws UsageError if gradients of a pass that bypassed Accelerator::backward() are there, and
  // were not meant to stay on this rank. `where` is what the user called.
  void require_no_local_pass(const char* where) const;
  void require_synchronised(const std::vector<at::Tensor>& parameters) const override;
  // The gradients of `parameters`, which may belong to other models, are about to be dropped.
  void before_zero_grad(const std::vector<at::Tensor>& parameters);
  // Throws UsageError on all ranks alike if this model, number `index`, is not fit to be saved.
  // Collective.
  void require_fit_to_save(size_t index, const char* where);

 protected:
  void before_forward() override;

 private:
  bool averages() const { return gradient_sync() == GradientSync::kOn; }
  void require_usable(const char* where) const;
  void prepare_forward();
  void follow_replays(device::ReplayActions& actions, bool trains) const;

  std::shared_ptr<torch::nn::Module> module_;
  std::shared_ptr<residency::FlatUnit> unit_;
  std::shared_ptr<Communicator> ranks_;
  DdpOptions options_;
  BufferBroadcast buffers_;
  FrozenParameters frozen_;
  LocalGradients local_;
  bool sync_next_ = false;
  bool is_alone_ = true;
  bool in_backward_ = false;  // stays where a pass threw
  bool reduces_ = false;      // the pass that runs
  int64_t reduced_passes_ = 0;
  std::unique_ptr<UnitReducer> reducer_;  // last: its hooks call the rest
};

}  // namespace accelerate
