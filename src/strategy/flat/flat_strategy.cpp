#include "strategy/flat/flat_strategy.h"

#include <torch/nn/module.h>

#include <algorithm>
#include <string>
#include <utility>

#include "accelerate/errors.h"
#include "comm/agreement.h"
#include "comm/groups/process_group.h"
#include "optim/flat_update.h"
#include "strategy/ddp/replica_check.h"
#include "strategy/ddp/tensor_broadcast.h"
#include "strategy/ddp/trainable_parameters.h"
#include "strategy/ddp/update_checks.h"

namespace accelerate {
namespace {

[[noreturn]] void refuse_flat(std::string what, std::string hint) {
  throw UsageError(
      {.what = std::move(what), .where = "AcceleratorOptions::flat", .hint = std::move(hint)});
}

void require_usable(const FlatOptions& flat, const DdpOptions& options, int ranks) {
  if (flat.dtype != at::kFloat && flat.dtype != at::kHalf && flat.dtype != at::kBFloat16) {
    refuse_flat(std::string("flat parameters cannot be ") + c10::toString(flat.dtype),
                "kFloat, kHalf or kBFloat16");
  }
  if (!flat.masters && flat.dtype == at::kHalf) {
    refuse_flat("float16 parameters without masters", "kBFloat16, or keep the masters");
  }
  if (ranks > 1 && options.comm_hook.hook != CommHook::kNo) {
    refuse_flat("communication hooks are for parameters that are not flat",
                "leave ddp.comm_hook out, or flat");
  }
}

std::vector<comm::Fact> facts_of(const FlatOptions& flat) {
  const auto yes_or_no = [](bool value) { return std::string(value ? "true" : "false"); };
  return {{"flat.dtype", c10::toString(flat.dtype)},
          {"flat.masters", yes_or_no(flat.masters)},
          {"flat.seed", std::to_string(flat.seed)}};
}

}  // namespace

FlatStrategy::FlatStrategy(std::shared_ptr<Communicator> ranks, const FlatOptions& flat,
                           const DdpOptions& options)
    : ranks_(std::move(ranks)), flat_(flat), options_(options), loose_(ranks_) {
  require_usable(flat, options, ranks_->world_size());
}

// Changes nothing: loops over loaders ask it too, and may have threads of their own.
std::vector<std::shared_ptr<FlatModel>> FlatStrategy::live(const Models& models) {
  std::vector<std::shared_ptr<FlatModel>> all;
  for (const auto& weak : models) {
    auto model = weak.lock();
    if (model && !model->unit()->is_released()) all.push_back(std::move(model));
  }
  return all;
}

FlatUnits FlatStrategy::units() const {
  FlatUnits all;
  for (const auto& model : live(*models_)) all.push_back(model->unit());
  return all;
}

std::shared_ptr<ModelStrategy> FlatStrategy::wrap(std::shared_ptr<torch::nn::Module> module) {
  const bool has_peers = ranks_->world_size() > 1;
  if (has_peers) {
    comm::require_same(*ranks_, facts_of(flat_), "prepare");
    require_same_model(*module, *ranks_);
  }
  loose_.add_model(*module);
  TrainableParameters parameters = trainable_parameters(*module);
  if (parameters.tensors.empty()) return std::make_shared<ModelStrategy>();
  for (size_t i = 0; i < parameters.tensors.size(); ++i) {
    if (parameters.sparse[i]) {
      refuse_flat("'" + parameters.names[i] + "' gets sparse gradients",
                  "make the embedding without sparse");
    }
    for (const auto& unit : units()) {
      if (!unit->find(parameters.tensors[i])) continue;
      refuse_flat("'" + parameters.names[i] + "' belongs to another prepared model too",
                  "prepare one model that has both as modules");
    }
  }
  if (has_peers) {
    // In float32, before values are rounded.
    ranks_->guard("broadcast of parameters", [&] {
      broadcast_tensors(comm::process_group_of(*ranks_), module->parameters(), 0);
    });
    ranks_->guard("broadcast of buffers", [&] {
      broadcast_tensors(comm::process_group_of(*ranks_), module->buffers(), 0);
    });
  }
  auto unit = std::make_shared<residency::FlatUnit>(std::move(parameters.tensors),
                                                    std::move(parameters.names), flat_);
  auto model = std::make_shared<FlatModel>(std::move(module), unit, ranks_, options_);
  const auto is_gone = [](const auto& weak) { return weak.expired(); };
  std::erase_if(*units_, is_gone);
  std::erase_if(*models_, is_gone);
  units_->push_back(unit);
  models_->push_back(model);
  return model;
}

std::unique_ptr<OptimizerStrategy> FlatStrategy::prepare_optimizer(
    const OptimizerPreparation& preparation) {
  const bool compares = ranks_->world_size() > 1 && options_.check_replicas;
  const auto exchanged = [models = models_] {
    UpdateChecks::Models all;
    for (auto& model : live(*models)) all.push_back(std::move(model));
    return all;
  };
  const auto checks =
      std::make_shared<UpdateChecks>(exchanged, compares ? loose_.add_optimizer() : nullptr);
  auto strategy = std::make_unique<FlatOptimizer>(
      preparation.optimizer, units_,
      [checks](const std::vector<at::Tensor>& parameters) { checks->before_update(parameters); });
  checks->note_parameters(strategy->parameters());
  return strategy;
}

void FlatStrategy::before_backward(const BackwardCall& call) {
  for (const auto& model : live(*models_)) {
    model->unit()->mirror_dropped_gradients();
    model->set_alone(call.models.size() == 1);
  }
}

void FlatStrategy::settle_clips() const {
  for (const auto& unit : units()) {
    unit->put_gradients_back();
    unit->settle_clip();
  }
}

at::Tensor FlatStrategy::grad_norm(at::TensorList parameters, const ClipNormOptions& options) {
  settle_clips();
  return Strategy::grad_norm(parameters, options);
}

at::Tensor FlatStrategy::clip_grad_norm_(at::TensorList parameters, double max_norm,
                                         const ClipNormOptions& options) {
  settle_clips();
  if (options.norm_type == 2.0 && !options.error_if_nonfinite && max_norm >= 0) {
    for (const auto& unit : units()) {
      std::vector<at::Tensor> others;
      if (!unit->update_clips() || !unit->is_covered_by(parameters, others) || !others.empty())
        continue;
      const at::NoGradGuard no_grad;
      at::Tensor norm = flat_gradient_norm(unit->gradient());
      unit->defer_clip({.norm = norm, .max_norm = max_norm});
      return norm;
    }
  }
  return Strategy::clip_grad_norm_(parameters, max_norm, options);
}

void FlatStrategy::clip_grad_value_(at::TensorList parameters, double clip_value) {
  settle_clips();
  Strategy::clip_grad_value_(parameters, clip_value);
}

void FlatStrategy::before_zero_grad(const std::vector<at::Tensor>& parameters) {
  for (const auto& model : live(*models_)) model->before_zero_grad(parameters);
}

void FlatStrategy::drop_gradients(const std::vector<at::Tensor>& parameters, bool set_to_none) {
  drop_flat_gradients(units(), parameters, set_to_none);
}

void FlatStrategy::at_end_of_pass(const char* where) {
  if (ranks_->world_size() > 1 && options_.check_replicas) loose_.at_end_of_pass(where);
}

void FlatStrategy::require_sound(const char* where) {
  for (const auto& model : live(*models_)) model->require_no_local_pass(where);
}

void FlatStrategy::join_uneven_inputs(
    const std::function<void()>& /*body*/, const JoinOptions& /*options*/,
    const std::vector<std::shared_ptr<ModelStrategy>>& /*models*/,
    const std::vector<std::shared_ptr<ModelStrategy>>& /*others*/) {
  throw UsageError({.what = "ranks with different numbers of batches cannot be joined where "
                            "parameters are flat",
                    .where = "join_uneven_inputs",
                    .hint = "give all ranks as many batches (even_batches), or leave "
                            "AcceleratorOptions::flat out"});
}

void FlatStrategy::before_save(const char* where, bool /*with_gradients*/) {
  settle_clips();
  size_t index = 0;
  for (const auto& model : live(*models_)) model->require_fit_to_save(index++, where);
  if (ranks_->world_size() > 1 && options_.check_replicas) loose_.require_same(where);
}

}  // namespace accelerate
