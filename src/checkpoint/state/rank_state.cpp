#include "checkpoint/state/rank_state.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>
#include <variant>

#include "accelerate/errors.h"
#include "checkpoint/archive/copy_budget.h"

namespace accelerate::checkpoint {
namespace {

using Tensors = RankState::Tensors;

// Archives hold dense memory: a sparse gradient is its parts.
TorchValue rng_value(const at::Tensor& tensor) {
  if (!tensor.is_sparse()) return tensor;
  return TorchDict{{"indices", tensor._indices()},
                   {"values", tensor._values()},
                   {"size", TorchSize{tensor.sizes().vec()}},
                   {"coalesced", tensor.is_coalesced()}};
}

at::Tensor to_tensor(const TorchValue& value) {
  if (value.is_tensor()) return value.as_tensor();
  const TorchDict& parts = value.as_dict();
  const auto* size = std::get_if<TorchSize>(&parts.at("size").variant());
  if (size == nullptr) throw CheckpointError({.what = "a sparse gradient without its size"});
  return at::sparse_coo_tensor(parts.at("indices").as_tensor(), parts.at("values").as_tensor(),
                               size->sizes)
      ._coalesced_(parts.at("coalesced").as_bool());
}

TorchValue rng_value(const std::vector<Tensors>& models) {
  TorchValue::List values;
  for (const Tensors& tensors : models) {
    TorchDict dict;
    for (const auto& [name, tensor] : tensors) dict.add(name, rng_value(tensor));
    values.emplace_back(std::move(dict));
  }
  return values;
}

std::vector<Tensors> to_models(const TorchValue& value) {
  std::vector<Tensors> models;
  for (const TorchValue& model : value.as_sequence()) {
    Tensors& tensors = models.emplace_back();
    for (const auto& [name, tensor] : model.as_dict().entries()) {
      tensors.emplace(name.as_string(), to_tensor(tensor));
    }
  }
  return models;
}

}  // namespace

bool RankState::has_hooks() const {
  return std::ranges::any_of(hooks, [](const StateDict& hook) { return hook.size() > 0; });
}

TorchValue RankState::to_archive() const {
  return TorchDict{{"losses", losses},
                   {"weighted", weighted},
                   {"weighted_in_micro_batch", weighted_in_micro_batch},
                   {"sum_of_weights", sum_of_weights},
                   {"gradients", rng_value(gradients)},
                   {"buffers", rng_value(buffers)},
                   {"hooks", to_torch_value(StateValue::List(hooks.begin(), hooks.end()))},
                   {"trigger", trigger}};
}

RankState RankState::from_archive(const TorchValue& value) {
  const TorchDict& dict = value.as_dict();
  RankState state{.losses = dict.at("losses").as_integer(),
                  .weighted = dict.at("weighted").as_bool(),
                  .weighted_in_micro_batch = dict.at("weighted_in_micro_batch").as_bool(),
                  .sum_of_weights = dict.at("sum_of_weights").as_number(),
                  .gradients = to_models(dict.at("gradients")),
                  .buffers = to_models(dict.at("buffers")),
                  .trigger = dict.at("trigger").as_bool()};
  CopyBudget budget;  // the shapes of gradients and buffers are compared with the model instead
  for (const TorchValue& hook : dict.at("hooks").as_sequence()) {
    state.hooks.push_back(to_state_dict(hook));
    if (budget.take(state.hooks.back())) continue;
    throw CheckpointError({.what = "the state of PowerSGD describes far more than the file holds",
                           .hint = "load another checkpoint"});
  }
  return state;
}

std::string rank_file(int rank) { return "rank_state_" + std::to_string(rank) + ".bin"; }

RankState mean_of(const std::vector<RankState>& ranks) {
  const auto count = static_cast<double>(ranks.size());
  RankState mean;
  for (const RankState& rank : ranks) {
    mean.trigger = mean.trigger || rank.trigger;
    mean.losses = std::max(mean.losses, rank.losses);
    mean.weighted = mean.weighted || rank.weighted;
    mean.sum_of_weights += rank.sum_of_weights / count;
    mean.gradients.resize(std::max(mean.gradients.size(), rank.gradients.size()));
    for (size_t model = 0; model < rank.gradients.size(); ++model) {
      for (const auto& [name, gradient] : rank.gradients[model]) {
        at::Tensor& sum = mean.gradients[model][name];
        sum = sum.defined() ? sum + gradient : gradient;
      }
    }
  }
  for (Tensors& model : mean.gradients) {
    for (auto& [name, gradient] : model) gradient = gradient / count;
  }
  return mean;
}

}  // namespace accelerate::checkpoint
