// One process, or replicas that average their gradients, with parameters in flat units.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "accelerate/communicator.h"
#include "accelerate/ddp.h"
#include "accelerate/flat.h"
#include "accelerate/strategy.h"
#include "optim/flat_optimizer.h"
#include "strategy/ddp/loose_watch.h"
#include "strategy/flat/flat_model.h"

namespace accelerate {

// See FlatOptions.
class FlatStrategy final : public Strategy {
 public:
  // Throws UsageError for options that contradict each other or that flat parameters do not have.
  FlatStrategy(std::shared_ptr<Communicator> ranks, const FlatOptions& flat,
               const DdpOptions& options);
  std::string_view name() const override { return ranks_->world_size() == 1 ? "single" : "ddp"; }

  std::shared_ptr<ModelStrategy> wrap(std::shared_ptr<torch::nn::Module> module) override;
  std::unique_ptr<OptimizerStrategy> prepare_optimizer(
      const OptimizerPreparation& preparation) override;

  void before_backward(const BackwardCall& call) override;
  at::Tensor grad_norm(at::TensorList parameters, const ClipNormOptions& options) override;
  at::Tensor clip_grad_norm_(at::TensorList parameters, double max_norm,
                             const ClipNormOptions& options) override;
  void clip_grad_value_(at::TensorList parameters, double clip_value) override;
  void before_zero_grad(const std::vector<at::Tensor>& parameters) override;
  void drop_gradients(const std::vector<at::Tensor>& parameters, bool set_to_none) override;

  void require_sound(const char* where) override;
  void at_end_of_pass(const char* where) override;
  void before_save(const char* where, bool with_gradients) override;
  // Throws UsageError.
  void join_uneven_inputs(const std::function<void()>& body, const JoinOptions& options,
                          const std::vector<std::shared_ptr<ModelStrategy>>& models,
                          const std::vector<std::shared_ptr<ModelStrategy>>& others) override;
  bool shares_buffers() const override {
    return ranks_->world_size() > 1 && options_.broadcast_buffers;
  }

 private:
  using Models = std::vector<std::weak_ptr<FlatModel>>;

  // Those that are neither gone nor released, in the order of their preparation.
  static std::vector<std::shared_ptr<FlatModel>> live(const Models& models);
  FlatUnits units() const;
  // Gradients of `parameters` are about to be read or changed.
  void settle_clips() const;

  std::shared_ptr<Communicator> ranks_;
  FlatOptions flat_;
  DdpOptions options_;
  LooseWatch loose_;
  std::shared_ptr<Models> models_ = std::make_shared<Models>();
  std::shared_ptr<KnownFlatUnits> units_ = std::make_shared<KnownFlatUnits>();
};

}  // namespace accelerate
