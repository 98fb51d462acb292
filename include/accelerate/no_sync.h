// Backward passes without communication.
#pragma once

#include <memory>
#include <utility>

#include "accelerate/strategy.h"

namespace accelerate {

// While it lives, backward passes keep the gradients of `model` on their rank: they add up without
// being averaged. Plain loss.backward() is allowed too. Ends at the end of its scope. Not
// collective.
class [[nodiscard]] NoSync {
 public:
  explicit NoSync(std::shared_ptr<ModelStrategy> model)
      : model_(std::move(model)), before_(model_->gradient_sync()) {
    model_->set_gradient_sync(GradientSync::kLocal);
  }
  ~NoSync() { model_->set_gradient_sync(before_); }
  NoSync(const NoSync&) = delete;
  NoSync& operator=(const NoSync&) = delete;

 private:
  std::shared_ptr<ModelStrategy> model_;
  GradientSync before_;
};

}  // namespace accelerate
