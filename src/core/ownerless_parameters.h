// Parameters of prepared models that no prepared optimizer holds.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <unordered_set>
#include <vector>

#include "core/prepared_models.h"
#include "core/prepared_optimizers.h"

namespace accelerate {

// One thread at a time.
class OwnerlessParameters {
 public:
  // Those that need gradients, in the order of the models; valid until the next call.
  const std::vector<at::Tensor>& parameters(const PreparedModels& models,
                                            PreparedOptimizers& optimizers);
  // Says once if a loss has reached a model none of whose parameters a prepared optimizer holds:
  // its gradients are scaled, or are not finished yet. After parameters().
  void warn_once(bool is_scaled);

 private:
  // A model that has never had a prepared optimizer. One that had may still hold gradients of then.
  struct Model {
    size_t position = 0;  // among the prepared ones
    std::vector<at::Tensor> parameters{};
  };

  std::vector<const void*> seen_;  // changes where the rest may
  std::vector<at::Tensor> parameters_;
  std::vector<Model> models_;
  std::unordered_set<const void*> had_optimizer_;  // strategies of prepared models
  bool warned_ = false;
};

}  // namespace accelerate
