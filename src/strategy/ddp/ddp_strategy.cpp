#include "strategy/ddp/ddp_strategy.h"

#include <torch/nn/module.h>

#include <algorithm>
#include <string>
#include <unordered_set>
#include <utility>

#include "accelerate/errors.h"
#include "comm/groups/communicator_impl.h"
#include "strategy/ddp/replica_check.h"
#include "strategy/ddp/trainable_parameters.h"
#include "strategy/ddp/uneven_join.h"

namespace accelerate {
namespace {

class DdpOptimizer final : public OptimizerStrategy {
 public:
  DdpOptimizer(torch::optim::Optimizer& optimizer, std::unique_ptr<UpdateChecks> checks)
      : OptimizerStrategy(optimizer), checks_(std::move(checks)) {
    checks_->note_parameters(parameters());
  }

  void before_step() override { checks_->before_update(parameters()); }

 private:
  std::unique_ptr<UpdateChecks> checks_;
};

// The gradients of a model are averaged together: a pass into a part of them would never end on
// several ranks.
void require_whole_models(const std::vector<std::shared_ptr<DdpModel>>& models,
                          const std::vector<at::Tensor>& inputs) {
  std::unordered_set<const void*> wanted;
  for (const at::Tensor& input : inputs) wanted.insert(input.unsafeGetTensorImpl());
  for (const auto& model : models) {
    for (const auto& item : model->module().named_parameters()) {
      if (!item.value().requires_grad()) continue;
      if (wanted.contains(item.value().unsafeGetTensorImpl())) continue;
      throw UsageError({.what = "the loss is meant for a part of a prepared model: '" + item.key() +
                                "' is left out, and gradients of a model are averaged together",
                        .where = "BackwardOptions::only",
                        .hint = "name the whole model, or prepare its parts as models"});
    }
  }
}

// Where ranks exchange through NCCL, which has sums of dense tensors only.
void require_sums(const TrainableParameters& parameters, Communicator& ranks) {
  for (size_t i = 0; i < parameters.tensors.size(); ++i) {
    if (!parameters.sparse[i]) continue;
    if (comm::impl_of(ranks).collectives_for(parameters.tensors[i]).name() != "nccl") continue;
    throw UsageError({.what = "'" + parameters.names[i] +
                              "' gets sparse gradients, and NCCL adds up dense ones only",
                      .where = "prepare",
                      .hint = "make the embedding without sparse, or exchange through Gloo: "
                              ".process_group = {.cuda_backend = CudaBackend::kGloo}"});
  }
}

// As it is compared over the ranks where that is asked for.
std::string description_of(const BackwardCall& call) {
  std::string text =
      call.is_weighted ? "backward of a loss with a weight" : "backward of a loss without a weight";
  if (call.inputs) text += ", for " + std::to_string(call.inputs->size()) + " parameters alone";
  return text;
}

}  // namespace

void require_usable_ddp(const DdpOptions& options) {
  require_usable(options.comm_hook);
  constexpr double kMostMegabytes = 1024.0 * 1024;
  if (!(options.bucket_cap_mb > 0 && options.bucket_cap_mb <= kMostMegabytes)) {
    throw UsageError({.what = "bucket_cap_mb must be positive and at most 1048576",
                      .where = "DdpOptions",
                      .hint = "leave it out for the default of 25"});
  }
  if (options.check_replicas_every < 0) {
    throw UsageError(
        {.what = "check_replicas_every = " + std::to_string(options.check_replicas_every) +
                 " is not a number of updates",
         .where = "DdpOptions",
         .hint = "set it to 1 or more, or leave it out"});
  }
}

DdpStrategy::DdpStrategy(std::shared_ptr<Communicator> communicator, const DdpOptions& options)
    : communicator_(std::move(communicator)), options_(options), replicas_(communicator_, models_) {
  require_usable_ddp(options);
}

std::shared_ptr<ModelStrategy> DdpStrategy::wrap(std::shared_ptr<torch::nn::Module> module) {
  require_same_model(*module, *communicator_);
  TrainableParameters parameters = trainable_parameters(*module);
  require_sums(parameters, *communicator_);
  replicas_.loose().add_model(*module);
  if (parameters.tensors.empty()) {
    auto local = std::make_shared<ModelStrategy>();
    models_->add(local, nullptr);
    return local;
  }
  auto model =
      std::make_shared<DdpModel>(std::move(module), std::move(parameters), communicator_, options_);
  models_->add(model, model);
  return model;
}

std::unique_ptr<UpdateChecks> DdpStrategy::make_update_checks() {
  const auto live = [models = models_] {
    UpdateChecks::Models all;
    for (const auto& entry : models->live()) all.push_back(entry.model);
    return all;
  };
  return std::make_unique<UpdateChecks>(
      live, options_.check_replicas ? replicas_.loose().add_optimizer() : nullptr);
}

std::unique_ptr<OptimizerStrategy> DdpStrategy::prepare_optimizer(
    const OptimizerPreparation& preparation) {
  return std::make_unique<DdpOptimizer>(preparation.optimizer, make_update_checks());
}

void DdpStrategy::before_backward(const BackwardCall& call) {
  const std::vector<std::shared_ptr<DdpModel>> models = models_->among(call.models);
  if (call.inputs) require_whole_models(models, *call.inputs);
  const auto joined =
      std::ranges::find_if(models, [](const auto& model) { return model->join() != nullptr; });
  if (joined == models.end()) {
    const auto exchanges = [](const auto& model) {
      return model->gradient_sync() == GradientSync::kOn;
    };
    if (std::ranges::any_of(models, exchanges)) {
      comm::impl_of(*communicator_).compare(description_of(call));
    }
    return;
  }
  for (const auto& model : models) model->set_batch_weight(call.samples.value_or(1));
  if (!call.is_weighted) return;
  communicator_->guard("backward", [&] {
    (*joined)->join()->refuse_for_all(
        {.what = "a weighted loss inside join_uneven_inputs",
         .where = "backward",
         .hint = "leave the weight out and join with JoinDivisor::kSamples"});
  });
}

void DdpStrategy::before_zero_grad(const std::vector<at::Tensor>& parameters) {
  for (const auto& entry : models_->live()) entry.model->before_zero_grad(parameters);
}

void DdpStrategy::require_sound(const char* where) {
  if (options_.check_replicas) replicas_.require_no_local_pass(where);
}

void DdpStrategy::at_end_of_pass(const char* where) {
  if (options_.check_replicas) replicas_.at_end_of_pass(where);
}

void DdpStrategy::before_save(const char* where, bool /*with_gradients*/) {
  replicas_.require_same_replicas(where);
  if (options_.check_replicas) replicas_.loose().require_same(where);
}

std::vector<detail::JoinMember*> DdpStrategy::members_of(
    const std::vector<std::shared_ptr<DdpModel>>& models) const {
  std::vector<detail::JoinMember*> members;
  for (const auto& model : models) {
    if (model->join() != nullptr) {
      communicator_->guard("join_uneven_inputs", [&] {
        model->join()->refuse_for_all({.what = "one join_uneven_inputs inside another",
                                       .where = "join_uneven_inputs",
                                       .hint = "join once, around the whole loop"});
      });
    }
    members.push_back(model.get());
  }
  return members;
}

void DdpStrategy::join_uneven_inputs(const std::function<void()>& body, const JoinOptions& options,
                                     const std::vector<std::shared_ptr<ModelStrategy>>& models,
                                     const std::vector<std::shared_ptr<ModelStrategy>>& others) {
  // A rank without data answers with plain sums, which do not meet what a hook sends.
  if (options_.comm_hook.hook != CommHook::kNo) {
    throw UsageError({.what = "gradients that a communication hook compresses cannot be joined",
                      .where = "join_uneven_inputs",
                      .hint = "leave ddp.comm_hook out, or give all ranks as many batches "
                              "(even_batches)"});
  }
  const auto joined = models_->among(models);
  const auto outside = models_->among(others);
  detail::UnevenJoin(communicator_, options, members_of(joined), members_of(outside)).run(body);
}

}  // namespace accelerate
