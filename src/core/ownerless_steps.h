// Steps of an optimizer that was never prepared, with gradients that no step may use yet.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "core/own_steps.h"
#include "core/step_doubts.h"

namespace accelerate {

// What OwnSteps is for prepared optimizers, for parameters of prepared models that no prepared
// optimizer holds. Nobody knows what updates them: they are taken to be stepped if a
// few of their values have moved against their gradients. Other changes stay legal.
// A GPU tells a pass later. One thread at a time.
class OwnerlessSteps {
 public:
  // After a backward pass; those without a gradient are passed over.
  void note(const std::vector<at::Tensor>& parameters, GradientStage stage);
  // The gradients of these parameters were dropped.
  void forget(const std::vector<at::Tensor>& parameters);
  void forget_all();
  bool empty() const { return notes_.empty() && doubts_.empty(); }

  // The stage of gradients that such a step has used.
  std::optional<GradientStage> compare(OwnSteps::Wait wait);

 private:
  // A few values of one parameter.
  struct Note {
    at::Tensor parameter{};
    const void* memory = nullptr;
    at::Tensor before{};  // double
    at::Tensor gradient_before{};
    // Has the memory and the version of the gradient, also once that is gone.
    at::Tensor gradient{};
    const void* gradient_identity = nullptr;
    int64_t gradient_version = 0;
  };

  // Whether the gradients may have become fit for a step, or were replaced.
  bool is_excused(const Note& note) const;

  std::vector<Note> notes_;  // all on one device
  StepDoubts doubts_;
  GradientStage stage_ = GradientStage::kScaled;  // of the notes
  int64_t passes_ = 0;
};

}  // namespace accelerate
