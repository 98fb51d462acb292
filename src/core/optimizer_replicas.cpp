#include "core/optimizer_replicas.h"

#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>

#include "accelerate/optimizer_state.h"
#include "accelerate/strategy.h"
#include "comm/agreement.h"

namespace accelerate {
namespace {

// Adds what `value` holds, one entry for each tensor and each number in it.
void add_values(const std::string& name, const TorchValue& value, NamedValues& values) {
  if (value.is_tensor()) {
    values.emplace_back(name, value.as_tensor());
  } else if (std::holds_alternative<int64_t>(value.variant()) ||
             std::holds_alternative<double>(value.variant())) {
    values.emplace_back(name, at::scalar_tensor(value.as_number(), at::kDouble));
  } else if (std::holds_alternative<TorchValue::List>(value.variant())) {
    for (const TorchValue& item : value.as_sequence()) add_values(name, item, values);
  }
}

std::string names_in(const NamedValues& values) {
  std::string text;
  for (const auto& [name, value] : values) text += name + '\n';
  return text;
}

// The first value of a rank that differs from that of the first rank.
std::string first_difference(const NamedValues& values, const comm::RankDifference& difference) {
  const std::vector<std::string> first = comm::from_fields(difference.first);
  const std::vector<std::string> other = comm::from_fields(difference.other);
  const std::string everything = "the state";
  if (first.size() != 2 || other.size() != 2 || first[0] != other[0]) return everything;
  ReplicaDigest digest = ReplicaDigest::decode(first[1]);
  digest.take_names(ReplicaDigest::of(values));
  const auto found = digest.compare(ReplicaDigest::decode(other[1]));
  return found && !found->parameter.empty() ? found->parameter : everything;
}

}  // namespace

NamedValues optimizer_values(const torch::optim::Optimizer& optimizer) {
  NamedValues values;
  const TorchValue state = optimizer_state(optimizer);
  for (const auto& [parameter, own] : state.as_dict().at("state").as_dict().entries()) {
    for (const auto& [name, value] : own.as_dict().entries()) {
      add_values(name.as_string() + " of parameter " + std::to_string(parameter.as_integer()),
                 value, values);
    }
  }
  return values;
}

NamedValues replicated_values(const PreparedModels& models,
                              const std::vector<PreparedOptimizer>& optimizers) {
  NamedValues values;
  for (size_t i = 0; i < models.size(); ++i) {
    for (const auto& item : models[i].module->named_parameters()) {
      values.emplace_back("'" + item.key() + "' of model " + std::to_string(i), item.value());
    }
  }
  for (size_t i = 0; i < optimizers.size(); ++i) {
    for (auto& [name, value] : optimizer_values(optimizers[i].optimizer())) {
      values.emplace_back(name + " of optimizer " + std::to_string(i), value);
    }
  }
  return values;
}

void require_equal_optimizers(Communicator& ranks, const std::vector<PreparedOptimizer>& optimizers,
                              const checkpoint::OptimizersElsewhere& elsewhere,
                              std::string_view strategy) {
  for (size_t i = 0; i < optimizers.size(); ++i) {
    const PreparedOptimizer& prepared = optimizers[i];
    NamedValues values;
    std::string own;
    // One without a layout on some ranks only is found by their texts, too.
    comm::together(ranks, [&] {
      if (elsewhere.contains(&prepared.optimizer()) || prepared.strategy().layout()) return;
      values = optimizer_values(prepared.optimizer());
      own = comm::to_fields({names_in(values), ReplicaDigest::of(values).encode()});
    });
    comm::require_same(ranks, own, [&](const comm::RankDifference& difference) {
      return ErrorInfo{
          .what = difference_text(
                      first_difference(values, difference) + " of optimizer " + std::to_string(i),
                      difference.first_rank, difference.rank) +
                  ", and the strategy \"" + std::string(strategy) +
                  "\" gives no layout() for it: a checkpoint would keep only that of rank 0",
          .where = "save_state",
          .hint =
              "make the state equal in after_step(), or say which pieces each rank holds in "
              "OptimizerStrategy::layout()"};
    });
  }
}

}  // namespace accelerate
