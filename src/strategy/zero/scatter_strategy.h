// Gradients, the state of optimizers, and maybe parameters in shards: stages 2 and 3 of
// ZeroOptions.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "accelerate/communicator.h"
#include "accelerate/strategy.h"
#include "accelerate/zero.h"
#include "strategy/ddp/loose_watch.h"
#include "strategy/zero/scattered_model.h"
#include "strategy/zero/shard_groups.h"
#include "strategy/zero/sharded_optimizer.h"

namespace accelerate {

class ScatterStrategy final : public Strategy {
 public:
  // On one rank too, where stage 3 stores masters beside parameters of another type.
  ScatterStrategy(std::shared_ptr<Communicator> ranks, const ZeroOptions& options);
  std::string_view name() const override { return "zero"; }
  // For models that are wrapped later, where sizes follow from the model.
  void set_options(const ZeroOptions& options);

  bool fills_empty_weights() const override { return options_.stage == 3; }
  void place(torch::nn::Module& module, c10::Device device) override;
  std::shared_ptr<ModelStrategy> wrap(std::shared_ptr<torch::nn::Module> module) override;
  std::unique_ptr<OptimizerStrategy> prepare_optimizer(
      const OptimizerPreparation& preparation) override;

  void before_backward(const BackwardCall& call) override;
  at::Tensor grad_norm(at::TensorList parameters, const ClipNormOptions& options) override;
  void before_zero_grad(const std::vector<at::Tensor>& parameters) override;
  void require_sound(const char* where) override;
  void at_end_of_pass(const char* where) override;
  void before_save(const char* where, bool with_gradients) override;
  void after_save() override;
  std::optional<int> ranks_of_one_copy() const override;
  bool shares_buffers() const override { return options_.ddp.broadcast_buffers; }

 private:
  using Models = std::vector<std::weak_ptr<ScatteredModel>>;

  // Those that are neither gone nor released, in the order of their preparation.
  static std::vector<std::shared_ptr<ScatteredModel>> live(const Models& models);
  // Collective, the first time.
  const ShardGroups& groups();

  std::shared_ptr<Communicator> ranks_;
  ZeroOptions options_;
  std::optional<ShardGroups> groups_;
  c10::Device device_ = c10::Device(c10::kCPU);  // where empty models go
  LooseWatch loose_;
  size_t wrapped_ = 0;  // models so far
  std::shared_ptr<Models> models_ = std::make_shared<Models>();
  std::shared_ptr<PlannedModels> planned_ = std::make_shared<PlannedModels>();
};

}  // namespace accelerate
