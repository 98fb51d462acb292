// Steps of the user's own optimizer with gradients that no step may use yet.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <optional>
#include <thread>
#include <vector>

#include "accelerate/prepared_optimizer.h"
#include "core/step_doubts.h"
#include "optim/step_trace.h"

namespace accelerate {

// Detects that step() was called on the optimizer given to prepare(), after a backward pass whose
// gradients are still scaled or still being accumulated. Most optimizers count their updates or
// keep a momentum, which tells at no cost. SGD without momentum leaves no trace: there a few
// parameters are compared with what its update would have made of them, so that other changes of
// parameters stay legal. On a GPU that comparison is queued and read a pass later, also where the
// device has made it before: all ranks must find a step in the same call, or one of them would wait
// for the others. One thread at a time.
class OwnSteps {
 public:
  using Wait = StepDoubts::Wait;  // passes are those that were noted

  // After a backward pass. `optimizers` are those whose gradients no step may use; those that have
  // none are passed over.
  void note(const std::vector<const torch::optim::Optimizer*>& optimizers, GradientStage stage);
  // Its gradients were used by a prepared step, were dropped or became fit for use, or it is gone:
  // not accessed.
  void forget(const torch::optim::Optimizer& optimizer);
  // The gradients of these parameters were dropped.
  void forget(const std::vector<at::Tensor>& parameters);
  void forget_all();
  // Whether there is nothing to look at.
  bool empty() const { return notes_.empty() && doubts_.empty(); }

  // These return the stage of gradients that such a step has used. All optimizers that were noted
  // are alive. For calls that come often: reads traces alone.
  std::optional<GradientStage> look() const;
  // Compares parameters too.
  std::optional<GradientStage> compare(Wait wait);
  // Whether this is the thread that runs the backward passes.
  bool is_of_this_thread() const { return noted_by_ == std::this_thread::get_id(); }

 private:
  // A few values of parameters that plain SGD updates, and what the update depends on.
  struct Sample {
    std::vector<at::Tensor> parameters{};
    std::vector<int64_t> versions{};
    std::vector<const void*> memory{};
    // Before and after an update. On the host:
    std::vector<double> values_before{};
    std::vector<double> values_expected{};
    // On a device:
    at::Tensor before{};
    at::Tensor expected{};

    bool is_on_host() const { return parameters[0].is_cpu(); }
    // In the open, which an update by plain SGD in this place is not.
    bool was_changed() const;
    bool is_updated() const;
    // The same on a device: float32, not 0 if so.
    at::Tensor is_updated_on_device() const;
  };
  struct Note {
    const torch::optim::Optimizer* optimizer = nullptr;
    GradientStage stage = GradientStage::kScaled;
    at::Tensor parameter{};  // the first with a gradient
    // Weak: while this exists, no other gradient gets the same address.
    c10::weak_intrusive_ptr<c10::TensorImpl> gradient;
    int64_t gradient_version = 0;
    std::optional<StepTrace> trace{};
    std::optional<Sample> sample{};  // where there is no trace
  };

  static std::optional<Sample> sample_of(const torch::optim::Optimizer& optimizer);
  // Whether the gradient of a later pass has taken the place of the one that was noted.
  static bool is_outdated(const Note& note);

  std::vector<Note> notes_;
  StepDoubts doubts_;
  int64_t passes_ = 0;  // that were noted
  std::atomic<std::thread::id> noted_by_{};
};

}  // namespace accelerate
