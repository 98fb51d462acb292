#include "strategy/zero/zero_strategy.h"

#include <torch/nn/module.h>

#include <utility>

#include "strategy/ddp/trainable_parameters.h"
#include "strategy/zero/zero_options.h"

namespace accelerate {

ZeroStrategy::ZeroStrategy(std::shared_ptr<Communicator> ranks, const ZeroOptions& options)
    : ranks_(std::move(ranks)), options_(options), replicas_(ranks_, options.ddp) {}

const ShardGroups& ZeroStrategy::groups() {
  if (!groups_) groups_ = open_shard_groups(ranks_, options_);
  return *groups_;
}

std::optional<int> ZeroStrategy::ranks_of_one_copy() const {
  return shard_sizes_of(options_, ranks_->world_size()).shard;
}

std::shared_ptr<ModelStrategy> ZeroStrategy::wrap(std::shared_ptr<torch::nn::Module> module) {
  const int shards = groups().shards->world_size();
  TrainableParameters all = trainable_parameters(*module);
  TrainableParameters sharded;
  for (size_t i = 0; i < all.tensors.size(); ++i) {
    // Another model that has it shards it.
    if (all.sparse[i] || planned_->find(all.tensors[i])) continue;
    sharded.tensors.push_back(std::move(all.tensors[i]));
    sharded.names.push_back(std::move(all.names[i]));
    sharded.sparse.push_back(false);
  }
  auto model = replicas_.wrap(std::move(module));
  planned_->add(model, std::make_shared<ShardPlan>(sharded, shards, bucket_bytes_of(options_)));
  return model;
}

std::unique_ptr<OptimizerStrategy> ZeroStrategy::prepare_optimizer(
    const OptimizerPreparation& preparation) {
  std::shared_ptr<UpdateChecks> checks = replicas_.make_update_checks();
  auto sharded = std::make_unique<ShardedOptimizer>(
      preparation.optimizer, groups().shards, planned_,
      [checks](const std::vector<at::Tensor>& parameters) { checks->before_update(parameters); });
  checks->note_parameters(sharded->parameters());
  return sharded;
}

}  // namespace accelerate
