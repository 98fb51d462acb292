// What the updates of one optimizer must not do to replicas.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "strategy/ddp/loose_parameters.h"

namespace accelerate {

// A model as these checks see it, at the moment.
struct ReplicaState {
  int64_t number = 0;  // of all that were ever prepared: the same on all ranks, used once
  const torch::nn::Module* module = nullptr;
  int64_t reduced_passes = 0;  // backward passes so far that averaged its gradients
  // Whether all ranks should hold the same parameters.
  bool is_replicated = false;
  std::function<bool(const at::Tensor& parameter)> trains{};
};

// Before each update, on several ranks, one thread at a time: refuses gradients that nobody has
// averaged where they differ over the ranks.
class UpdateChecks {
 public:
  using Replicas = std::function<std::vector<ReplicaState>()>;

  // `loose` is null where the ranks are not compared: nothing is refused then.
  UpdateChecks(Replicas replicas, std::shared_ptr<LooseParameters> loose)
      : replicas_(std::move(replicas)), loose_(std::move(loose)) {}

  // The optimizer has these parameters. Called when it is prepared, before models that follow.
  void note_parameters(const std::vector<at::Tensor>& parameters);
  // Throws UsageError. Compares over the ranks, but waits for none that does not come.
  void before_update(const std::vector<at::Tensor>& parameters);

 private:
  void require_same_assigned(const std::vector<at::Tensor>& parameters);

  Replicas replicas_;
  std::shared_ptr<LooseParameters> loose_;
  std::map<int64_t, int64_t> reduced_;  // by the number of a model: its passes at the last update
};

}  // namespace accelerate
