#include "strategy/ddp/model_passes.h"

#include <ATen/core/grad_mode.h>
#include <torch/nn/module.h>

#include "accelerate/errors.h"
#include "comm/groups/process_group.h"
#include "strategy/ddp/tensor_broadcast.h"

namespace accelerate {

BufferBroadcast::BufferBroadcast(const torch::nn::Module& module,
                                 std::shared_ptr<Communicator> ranks)
    : ranks_(std::move(ranks)), buffers_(module.buffers()) {}

void BufferBroadcast::before_forward(const torch::nn::Module& module, bool averages) {
  if (buffers_.empty() || ranks_->world_size() == 1) return;
  const bool training = module.is_training() && at::GradMode::is_enabled();
  if (averages && (training || changed_)) {
    ranks_->guard("broadcast of buffers in forward",
                  [&] { broadcast_tensors(comm::process_group_of(*ranks_), buffers_, 0); });
    changed_ = false;
  }
  changed_ = changed_ || training;
}

FrozenParameters::FrozenParameters(const torch::nn::Module& module) {
  for (const auto& item : module.named_parameters()) {
    if (!item.value().requires_grad()) frozen_.emplace_back(item.key(), item.value());
  }
}

void FrozenParameters::require_frozen() const {
  for (const auto& [name, parameter] : frozen_) {
    if (!parameter.requires_grad()) continue;
    throw UsageError({.what = "parameter '" + name +
                              "' was frozen when the model was prepared and needs a gradient now",
                      .where = "backward",
                      .hint = "free_memory() and prepare the model again, on all ranks"});
  }
}

void LocalGradients::require_none() const {
  if (!any_) return;
  throw UsageError({.what = "the gradients are those of this rank alone: they did not go "
                            "through accelerator.backward(loss)",
                    .where = "optimizer.step()",
                    .hint = "call accelerator.backward(loss) instead of loss.backward()"});
}

void refuse_model(const char* why, const char* where) {
  throw UsageError({.what = why, .where = where, .hint = "prepare it again, on all ranks"});
}

}  // namespace accelerate
