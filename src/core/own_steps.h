// Steps of the user's own optimizer with gradients that no step may use yet.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "accelerate/prepared_optimizer.h"
#include "compat/host_copy.h"
#include "optim/step_trace.h"

namespace accelerate {

// Why no step may use gradients yet.
enum class GradientStage { kScaled, kAccumulating };

// Detects that the optimizer which was given to prepare() was stepped itself, after a backward pass
// whose gradients are still scaled or still accumulate. Most optimizers count their updates or keep
// a momentum, which tells at no cost. SGD without momentum leaves no trace: there a few parameters
// are compared with what its update would have made of them, so that other changes of parameters
// stay legal. On a GPU that comparison is queued and read at the next one, without a wait. One
// thread at a time.
class OwnSteps {
 public:
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

  // These throw UsageError if such a step was made. All optimizers that were noted are alive.
  // `where` is what the user called. For calls that come often: reads traces alone.
  void look(const char* where);
  // Compares parameters too.
  void compare(const char* where);
  // The same, and waits for what a GPU has not told yet.
  void compare_and_wait(const char* where);
  // Whether this is the thread that runs the backward passes.
  bool is_of_this_thread() const { return noted_by_ == std::this_thread::get_id(); }

 private:
  // A few values of parameters that plain SGD updates, and what the update depends on.
  struct Sample {
    std::vector<at::Tensor> parameters{};
    std::vector<int64_t> versions{};
    std::vector<const void*> memory{};
    at::Tensor before{};
    at::Tensor expected{};  // after an update
  };
  struct Note {
    const torch::optim::Optimizer* optimizer = nullptr;
    GradientStage stage = GradientStage::kScaled;
    at::Tensor parameter{};  // the first with a gradient
    const void* gradient = nullptr;
    std::optional<StepTrace> trace{};
    std::optional<Sample> sample{};  // where there is no trace
  };
  // A comparison that a GPU makes.
  struct Doubt {
    compat::HostCopy is_step;
    GradientStage stage;
  };

  static std::optional<Sample> sample_of(const torch::optim::Optimizer& optimizer);
  // Float32, not 0 if the values are those after an update; undefined if the parameters were
  // changed in the open.
  static at::Tensor is_updated(const Sample& sample);
  // Whether the gradient of a later pass has taken the place of the one that was noted.
  static bool is_outdated(const Note& note);
  [[noreturn]] void refuse(GradientStage stage, const char* where);
  void settle_doubts(const char* where);

  std::vector<Note> notes_;
  std::vector<Doubt> doubts_;
  std::atomic<std::thread::id> noted_by_{};
};

}  // namespace accelerate
