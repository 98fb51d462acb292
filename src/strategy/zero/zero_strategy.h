// Replicas whose optimizers keep shards: stage 1 of ZeroOptions.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "accelerate/communicator.h"
#include "accelerate/strategy.h"
#include "accelerate/zero.h"
#include "strategy/ddp/ddp_strategy.h"
#include "strategy/zero/shard_groups.h"
#include "strategy/zero/sharded_optimizer.h"

namespace accelerate {

// Parameters and gradients are those of DDP, to the last bit.
class ZeroStrategy final : public Strategy {
 public:
  // On two ranks or more.
  ZeroStrategy(std::shared_ptr<Communicator> ranks, const ZeroOptions& options);
  std::string_view name() const override { return "zero"; }

  std::shared_ptr<ModelStrategy> wrap(std::shared_ptr<torch::nn::Module> module) override;
  std::unique_ptr<OptimizerStrategy> prepare_optimizer(
      const OptimizerPreparation& preparation) override;

  void before_backward(const BackwardCall& call) override {
    replicas_.before_backward(call);
    planned_->note_pass(call.models, ranks_->rank() == 0);
  }
  void before_zero_grad(const std::vector<at::Tensor>& parameters) override {
    replicas_.before_zero_grad(parameters);
    planned_->note_dropped(parameters);
  }
  void require_sound(const char* where) override { replicas_.require_sound(where); }
  void at_end_of_pass(const char* where) override { replicas_.at_end_of_pass(where); }
  void before_save(const char* where, bool with_gradients) override {
    replicas_.before_save(where, with_gradients);
  }
  std::optional<int> ranks_of_one_copy() const override;
  bool shares_buffers() const override { return replicas_.shares_buffers(); }

 private:
  // Collective, the first time.
  const ShardGroups& groups();

  std::shared_ptr<Communicator> ranks_;
  ZeroOptions options_;
  DdpStrategy replicas_;
  std::optional<ShardGroups> groups_;
  std::shared_ptr<PlannedModels> planned_ = std::make_shared<PlannedModels>();
};

}  // namespace accelerate
