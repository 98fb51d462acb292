// What a strategy does unless it has something better to do.
#include "accelerate/strategy.h"

#include <torch/nn/module.h>

#include "accelerate/errors.h"
#include "device/device_backend.h"
#include "optim/drop_gradients.h"

namespace accelerate {

void ModelStrategy::require_whole(const char* where) const {
  const ModelLayout pieces = layout();
  if (pieces.empty()) return;
  throw UsageError({.what = "this rank holds a piece of '" + pieces.begin()->first +
                            "', and whole tensors are needed",
                    .where = where,
                    .hint = "use save_state() and load_state(), or save_model(), which put the "
                            "pieces of all ranks together"});
}

void Strategy::place(torch::nn::Module& module, c10::Device device) {
  device::device_backend(device.type()).place(module, device);
}

std::unique_ptr<OptimizerStrategy> Strategy::prepare_optimizer(
    const OptimizerPreparation& preparation) {
  return std::make_unique<OptimizerStrategy>(preparation.optimizer);
}

at::Tensor Strategy::grad_norm(at::TensorList parameters, const ClipNormOptions& options) {
  return accelerate::grad_norm(parameters, options);
}

at::Tensor Strategy::clip_grad_norm_(at::TensorList parameters, double max_norm,
                                     const ClipNormOptions& options) {
  // A bound that it refuses; nothing is computed or asked of other ranks then.
  if (!(max_norm >= 0)) return accelerate::clip_grad_norm_(parameters, max_norm, options);
  at::Tensor norm = grad_norm(parameters, options);
  clip_grads_with_norm_(parameters, max_norm, norm);
  return norm;
}

void Strategy::clip_grad_value_(at::TensorList parameters, double clip_value) {
  accelerate::clip_grad_value_(parameters, clip_value);
}

void Strategy::drop_gradients(const std::vector<at::Tensor>& parameters, bool set_to_none) {
  accelerate::drop_gradients(parameters, set_to_none);
}

void Strategy::join_uneven_inputs(const std::function<void()>& /*body*/,
                                  const JoinOptions& /*options*/,
                                  const std::vector<std::shared_ptr<ModelStrategy>>& /*models*/,
                                  const std::vector<std::shared_ptr<ModelStrategy>>& /*others*/) {
  throw UsageError({.what = "the strategy \"" + std::string(name()) +
                            "\" cannot join ranks with different numbers of batches",
                    .where = "join_uneven_inputs",
                    .hint = "give all ranks as many batches (even_batches), or train with DDP"});
}

}  // namespace accelerate
