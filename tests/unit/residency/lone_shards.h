// Units of one process that has the shard of one rank; what other ranks would send is at hand.
#pragma once

#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "residency/touch/touched_units.h"

namespace accelerate::test {

// Sends what the parameters were when it was made, and what this rank has now.
class LoneGatherer final : public residency::ShardGatherer {
 public:
  LoneGatherer(const std::vector<residency::UnitParameters>& units, int rank, int world_size)
      : rank_(rank) {
    for (const auto& unit : units) {
      std::vector<int64_t> numels;
      for (const at::Tensor& parameter : unit.parameters) numels.push_back(parameter.numel());
      const residency::UnitLayout layout(numels, world_size);
      const at::Tensor& first = unit.parameters[0];
      const c10::Device device = first.is_meta() ? c10::Device(c10::kCPU) : first.device();
      at::Tensor row =
          at::zeros({layout.whole_numel()}, at::TensorOptions(device).dtype(at::kDouble));
      for (size_t i = 0; i < numels.size(); ++i) {
        if (unit.parameters[i].is_meta()) continue;
        row.narrow(0, layout.begin(i), numels[i]).copy_(unit.parameters[i].detach().reshape({-1}));
      }
      rows_.push_back(std::move(row));
    }
  }

  std::function<void()> begin(const residency::GatherCall& call) override {
    if (fails) throw std::runtime_error("the gather of " + call.name + " fails");
    events.push_back("begin " + call.name);
    begun.push_back(call.unit);
    return
        [this, call, name = call.name, unit = call.unit, whole = call.whole, shard = call.shard] {
          events.push_back("end " + name);
          whole.copy_(rows_[unit]);
          whole.narrow(0, rank_ * shard.numel(), shard.numel()).copy_(shard);
        };
  }
  void broadcast(at::Tensor whole, int rank) override {
    events.push_back("broadcast from " + std::to_string(rank));
    static_cast<void>(whole);
  }

  std::vector<std::string> events{};
  std::vector<size_t> begun{};
  bool fails = false;

 private:
  int rank_;
  std::vector<at::Tensor> rows_;  // as all ranks have them
};

// A unit of each child of `module` that has parameters.
inline std::vector<residency::UnitParameters> unit_of_each_child(const torch::nn::Module& module) {
  std::vector<residency::UnitParameters> units;
  for (const auto& child : module.named_children()) {
    residency::UnitParameters unit{.name = child.key()};
    for (const auto& item : child.value()->named_parameters()) {
      unit.parameters.push_back(item.value());
      unit.names.push_back(child.key() + "." + item.key());
    }
    if (!unit.parameters.empty()) units.push_back(std::move(unit));
  }
  return units;
}

struct LoneUnits {
  explicit LoneUnits(std::vector<residency::UnitParameters> parameters,
                     const residency::TouchOptions& options = {}, int rank = 0, int world_size = 2)
      : gatherer(std::make_shared<LoneGatherer>(parameters, rank, world_size)),
        units(std::move(parameters), rank, world_size, gatherer, options) {}
  explicit LoneUnits(const torch::nn::Module& module, const residency::TouchOptions& options = {})
      : LoneUnits(unit_of_each_child(module), options) {}

  std::shared_ptr<LoneGatherer> gatherer;
  residency::TouchedUnits units;
};

}  // namespace accelerate::test
