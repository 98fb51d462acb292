// What the updates of one optimizer must not do to replicas.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "strategy/ddp/exchanged_model.h"
#include "strategy/ddp/loose_parameters.h"

namespace accelerate {

// Before each update, on several ranks, one thread at a time: refuses gradients of this rank alone.
class UpdateChecks {
 public:
  using Models = std::vector<std::shared_ptr<ExchangedModel>>;

  // `live` gives the models at the moment. `loose` is null where the ranks are not compared.
  UpdateChecks(std::function<Models()> live, std::shared_ptr<LooseParameters> loose)
      : live_(std::move(live)), loose_(std::move(loose)) {}

  // The optimizer has these parameters. Called when it is prepared, before models that follow.
  void note_parameters(const std::vector<at::Tensor>& parameters);
  // Throws UsageError. Compares over the ranks, but waits for none that does not come.
  void before_update(const std::vector<at::Tensor>& parameters);

 private:
  void require_same_assigned(const Models& models, const std::vector<at::Tensor>& parameters);

  std::function<Models()> live_;
  std::shared_ptr<LooseParameters> loose_;
  // Passes of a model at the last update.
  std::map<std::weak_ptr<ExchangedModel>, int64_t, std::owner_less<>> reduced_;
};

}  // namespace accelerate
