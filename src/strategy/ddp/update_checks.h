// What the updates of one optimizer must not do to the ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "strategy/ddp/loose_parameters.h"
#include "strategy/flat/flat_model.h"

namespace accelerate {

// Before each update, on several ranks, one thread at a time: refuses gradients of this rank alone.
class RankChecks {
 public:
  using LiveModels = std::function<std::vector<std::shared_ptr<FlatModel>>()>;

  // `loose` is null where the ranks are not compared.
  RankChecks(LiveModels models, std::shared_ptr<LooseParameters> loose)
      : models_(std::move(models)), loose_(std::move(loose)) {}

  // The optimizer has these parameters. Called when it is prepared, before models that follow.
  void note_parameters(const std::vector<at::Tensor>& parameters);
  // Throws UsageError. Compares over the ranks, but waits for none that does not come.
  void before_update(const std::vector<at::Tensor>& parameters);

 private:
  void require_same_assigned(const std::vector<std::shared_ptr<FlatModel>>& models,
                             const std::vector<at::Tensor>& parameters);

  LiveModels models_;
  std::shared_ptr<LooseParameters> loose_;
  std::map<const FlatModel*, int64_t> reduced_;  // passes of a model at the last update
};

}  // namespace accelerate
