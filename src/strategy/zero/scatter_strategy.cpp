#include "strategy/zero/scatter_strategy.h"

#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "accelerate/empty_weights.h"
#include "accelerate/errors.h"
#include "comm/agreement.h"
#include "comm/groups/process_group.h"
#include "residency/touch/unit_choice.h"
#include "strategy/ddp/replica_check.h"
#include "strategy/ddp/tensor_broadcast.h"
#include "strategy/ddp/trainable_parameters.h"
#include "strategy/ddp/update_checks.h"
#include "strategy/zero/empty_model.h"
#include "strategy/zero/zero_options.h"

namespace accelerate {
namespace {

[[noreturn]] void refuse_model_of_stage_2(std::string what, std::string hint) {
  throw UsageError({.what = std::move(what), .where = "prepare", .hint = std::move(hint)});
}

// Units in the order in which a backward pass comes to them.
std::vector<residency::UnitParameters> units_of(const torch::nn::Module& module,
                                                const ZeroUnits& units, c10::Device device) {
  const residency::UnitChoice choice{.persistence_threshold = units.persistence_threshold,
                                     .device = device};
  std::vector<residency::UnitParameters> chosen;
  if (!units.modules.empty()) {
    chosen = residency::units_by_name(module, units.modules, choice);
  } else if (units.min_num_params > 0) {
    chosen = residency::units_by_size(module, units.min_num_params, choice);
  } else {
    chosen = residency::units_by_structure(module, choice);
  }
  std::ranges::reverse(chosen);
  return chosen;
}

// The numbers of their parameters, of which those that are frozen are added to the others.
std::vector<std::vector<size_t>> add_units(const std::vector<residency::UnitParameters>& units,
                                           TrainableParameters& parameters) {
  std::unordered_map<const void*, size_t> numbers;
  for (size_t i = 0; i < parameters.tensors.size(); ++i) {
    numbers.emplace(parameters.tensors[i].unsafeGetTensorImpl(), i);
  }
  std::vector<std::vector<size_t>> members;
  for (const residency::UnitParameters& unit : units) {
    std::vector<size_t>& own = members.emplace_back();
    for (size_t i = 0; i < unit.parameters.size(); ++i) {
      const auto [known, is_new] =
          numbers.emplace(unit.parameters[i].unsafeGetTensorImpl(), parameters.tensors.size());
      if (is_new) {
        parameters.tensors.push_back(unit.parameters[i]);
        parameters.names.push_back(unit.names[i]);
        parameters.sparse.push_back(false);
      }
      own.push_back(known->second);
    }
  }
  return members;
}

residency::TouchOptions touch_options_of(const ZeroUnits& units, c10::Device device) {
  return {.whole_dtype = units.param_dtype,
          .device = device,
          .release_after_forward = units.reshard_after_forward,
          .keep_within_numel = units.max_reuse_distance,
          .max_whole_numel = units.max_live_parameters,
          .prefetch_units = units.prefetch};
}

std::unordered_set<const void*> members_of(const std::vector<residency::UnitParameters>& units) {
  std::unordered_set<const void*> members;
  for (const residency::UnitParameters& unit : units) {
    for (const at::Tensor& parameter : unit.parameters) {
      members.insert(parameter.unsafeGetTensorImpl());
    }
  }
  return members;
}

// This rank's part of what is in `units`, which may be null, and all of the rest. Collective.
void fill_empty(EmptyModel& empty, residency::TouchedUnits* units) {
  if (empty.none()) return;
  empty.fill([units](at::Tensor& tensor, const at::Tensor& values) {
    const auto place = units != nullptr ? units->find(tensor) : std::nullopt;
    if (!place) {
      tensor.detach().copy_(values);
      return;
    }
    const auto& [unit, index] = *place;
    at::Tensor own = units->piece(unit, index).detach();
    if (own.numel() == 0) return;
    const int64_t begin = units->begin_of_piece(unit, index);
    own.copy_(values.reshape({-1}).narrow(0, begin, own.numel()));
  });
  if (units != nullptr) units->shards_changed();
}

// That of norms of these gradients, on whichever rank they are.
at::ScalarType type_of_norms(at::TensorList parameters) {
  at::ScalarType widest = at::kFloat;
  for (const at::Tensor& parameter : parameters) {
    if (!parameter.grad().defined()) continue;
    const at::ScalarType own = at::toRealValueType(parameter.scalar_type());
    if (own == at::kDouble) widest = own;
  }
  return widest;
}

}  // namespace

ScatterStrategy::ScatterStrategy(std::shared_ptr<Communicator> ranks, const ZeroOptions& options)
    : ranks_(std::move(ranks)), options_(options), loose_(ranks_) {}

void ScatterStrategy::set_options(const ZeroOptions& options) {
  require_usable_zero(options, ranks_->world_size());
  options_ = options;
}

// Changes nothing: loops over loaders ask it too, and may have threads of their own.
std::vector<std::shared_ptr<ScatteredModel>> ScatterStrategy::live(const Models& models) {
  std::vector<std::shared_ptr<ScatteredModel>> all;
  for (const auto& weak : models) {
    auto model = weak.lock();
    if (model && !model->is_released()) all.push_back(std::move(model));
  }
  return all;
}

const ShardGroups& ScatterStrategy::groups() {
  if (!groups_) groups_ = open_shard_groups(ranks_, options_);
  return *groups_;
}

std::optional<int> ScatterStrategy::ranks_of_one_copy() const {
  return shard_sizes_of(options_, ranks_->world_size()).shard;
}

void ScatterStrategy::place(torch::nn::Module& module, c10::Device device) {
  if (!has_empty_weights(module)) {
    Strategy::place(module, device);
    device_ = device;
    return;
  }
  device_ = device;
  const at::NoGradGuard no_grad;
  const auto place = [&](at::Tensor tensor) {
    if (tensor.defined() && !tensor.is_meta()) tensor.set_data(tensor.detach().to(device));
  };
  for (const at::Tensor& parameter : module.parameters()) place(parameter);
  for (const at::Tensor& buffer : module.buffers()) place(buffer);
}

std::shared_ptr<ModelStrategy> ScatterStrategy::wrap(std::shared_ptr<torch::nn::Module> module) {
  if (groups_)
    comm::require_same(*ranks_, facts_of(options_), "prepare");  // may be new: set_options()
  const ShardGroups& groups = this->groups();
  const int shards = groups.shards->world_size();
  require_same_model(*module, *ranks_);
  loose_.add_model(*module);
  TrainableParameters parameters = trainable_parameters(*module);
  for (size_t i = 0; i < parameters.tensors.size(); ++i) {
    if (parameters.sparse[i]) {
      refuse_model_of_stage_2("'" + parameters.names[i] + "' gets sparse gradients",
                              "make the embedding without sparse, or use ZeroOptions{.stage = 1}");
    }
    if (planned_->find(parameters.tensors[i])) {
      refuse_model_of_stage_2(
          "'" + parameters.names[i] + "' belongs to another prepared model too",
          "prepare one model that has both as modules, or use ZeroOptions{.stage = 1}");
    }
  }
  std::optional<EmptyModel> empty;
  if (fills_empty_weights()) empty.emplace(*module, ranks_);
  for (auto [tensors, what] : {std::pair{module->parameters(), "broadcast of parameters"},
                               {module->buffers(), "broadcast of buffers"}}) {
    std::erase_if(tensors, [&](const at::Tensor& tensor) {
      return empty && tensor.defined() && empty->has(tensor);
    });
    if (ranks_->world_size() == 1) break;
    ranks_->guard(what, [&] { broadcast_tensors(comm::process_group_of(*ranks_), tensors, 0); });
  }
  std::vector<residency::UnitParameters> chosen;
  if (options_.stage == 3 && !parameters.tensors.empty()) {
    chosen = units_of(*module, options_.units, device_);
  }
  if (empty) empty->make_memory(device_, members_of(chosen));
  if (parameters.tensors.empty()) {
    if (empty) fill_empty(*empty, nullptr);
    return std::make_shared<ModelStrategy>();
  }
  const std::vector<std::vector<size_t>> members = add_units(chosen, parameters);
  auto plan =
      std::make_shared<const ShardPlan>(parameters, shards, bucket_bytes_of(options_), members);
  const size_t number = wrapped_++;
  GatheredUnits gathered;
  if (!chosen.empty()) {
    gathered.gatherer =
        std::make_shared<residency::GroupGatherer>(groups.shards, groups.all, number);
    gathered.units = std::make_shared<residency::TouchedUnits>(
        std::move(chosen), groups.shards->rank(), shards, gathered.gatherer,
        touch_options_of(options_.units, device_));
  }
  if (empty) fill_empty(*empty, gathered.units.get());
  auto model = std::make_shared<ScatteredModel>(std::move(module), std::move(parameters.tensors),
                                                plan, gathered, groups, options_.ddp);
  if (options_.reduce_dtype) model->send_gradients_as(*options_.reduce_dtype);
  planned_->add(model, std::move(plan), std::move(gathered.units));
  std::erase_if(*models_, [](const auto& weak) { return weak.expired(); });
  models_->push_back(model);
  return model;
}

std::unique_ptr<OptimizerStrategy> ScatterStrategy::prepare_optimizer(
    const OptimizerPreparation& preparation) {
  const auto exchanged = [models = models_] {
    UpdateChecks::Models all;
    for (auto& model : live(*models)) all.push_back(std::move(model));
    return all;
  };
  const auto checks = std::make_shared<UpdateChecks>(
      exchanged, options_.ddp.check_replicas ? loose_.add_optimizer() : nullptr);
  auto sharded = std::make_unique<ShardedOptimizer>(
      preparation.optimizer, groups().shards, planned_,
      [checks](const std::vector<at::Tensor>& parameters) { checks->before_update(parameters); });
  checks->note_parameters(sharded->parameters());
  return sharded;
}

void ScatterStrategy::before_backward(const BackwardCall& call) {
  for (const auto& model : live(*models_)) model->set_alone(call.models.size() == 1);
  planned_->note_pass(call.models, ranks_->rank() == 0);
}

// As the norm of a list of gradients is the norm of their norms, so is that over the ranks which
// share a copy. All copies have the same gradients.
at::Tensor ScatterStrategy::grad_norm(at::TensorList parameters, const ClipNormOptions& options) {
  const at::NoGradGuard no_grad;
  const auto models = live(*models_);
  std::vector<at::Tensor> pieces, whole;
  for (const at::Tensor& parameter : parameters) {
    const bool is_piece =
        std::ranges::any_of(models, [&](const auto& model) { return model->has_piece(parameter); });
    (is_piece ? pieces : whole).push_back(parameter);
  }
  if (pieces.empty()) return Strategy::grad_norm(parameters, options);
  const ClipNormOptions of_part{.norm_type = options.norm_type};
  const at::Tensor own =
      accelerate::grad_norm(pieces, of_part).to(pieces.front().device(), at::kDouble);
  std::vector<at::Tensor> norms = groups().shards->all_gather(own);
  norms.push_back(accelerate::grad_norm(whole, of_part).to(own.options()));
  const at::Tensor total = at::linalg_vector_norm(at::stack(norms), options.norm_type);
  if (options.error_if_nonfinite && !std::isfinite(total.item<double>())) {
    throw UsageError({.what = "the norm of the gradients is " +
                              std::to_string(total.item<double>()) + ": they cannot be clipped",
                      .where = "clip_grad_norm_",
                      .hint = "look for the step that made them so, or leave out "
                              "error_if_nonfinite"});
  }
  return total.to(type_of_norms(parameters));
}

void ScatterStrategy::before_zero_grad(const std::vector<at::Tensor>& parameters) {
  for (const auto& model : live(*models_)) model->before_zero_grad(parameters);
  planned_->note_dropped(parameters);
}

void ScatterStrategy::require_sound(const char* where) {
  for (const auto& model : live(*models_)) model->require_no_local_pass(where);
}

void ScatterStrategy::at_end_of_pass(const char* where) {
  if (options_.ddp.check_replicas) loose_.at_end_of_pass(where);
}

void ScatterStrategy::before_save(const char* where, bool with_gradients) {
  size_t index = 0;
  for (const auto& model : live(*models_)) {
    model->require_fit_to_save(index++, where);
    if (with_gradients) model->make_gradients_whole();
  }
  if (options_.ddp.check_replicas) loose_.require_same(where);
}

void ScatterStrategy::after_save() {
  for (const auto& model : live(*models_)) model->end_save();
}

}  // namespace accelerate
