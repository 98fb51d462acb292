// Local SGD: the ranks train by themselves and average their parameters every few steps.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "accelerate/export.h"
#include "accelerate/strategy.h"

namespace accelerate {

class Communicator;

struct LocalSgdOptions {
  // Optimizer steps from one average to the next.
  int64_t local_sgd_steps = 8;
  // False: nothing is changed, gradients are averaged as always.
  bool enabled = true;
};

// While it lives, the gradients of a model stay on their rank, and after every
// `local_sgd_steps`-th step() its parameters are averaged over the ranks; once more at the end.
//
//   LocalSgd local_sgd(accelerator.communicator(), model, {.local_sgd_steps = 8});
//   for (auto& batch : loader) { ...; optimizer.step(); optimizer.zero_grad(); local_sgd.step(); }
//   local_sgd.finish();
//
// One all-reduce for each type of parameters. Collective where it averages: all ranks, same number
// of steps. The communicator must outlive it. One thread at a time.
//
// Under fp16 the ranks find overflows in gradients of their own: the scale and the steps that are
// left out may differ from rank to rank. Call step() whether or not the optimizer made its
// step, so that the ranks average together.
class [[nodiscard]] ACCELERATE_EXPORT LocalSgd {
 public:
  // `strategy` may be null: then gradients are left to the caller. Throws UsageError unless
  // local_sgd_steps is positive.
  LocalSgd(Communicator& communicator, std::vector<at::Tensor> parameters,
           std::shared_ptr<ModelStrategy> strategy, const LocalSgdOptions& options = {});
  // Of a PreparedModel.
  template <class Model>
  LocalSgd(Communicator& communicator, const Model& model, const LocalSgdOptions& options = {})
      : LocalSgd(communicator, model->parameters(), model.strategy(), options) {}
  // finish(), unless that was called or an exception is in flight. An error is then logged: the
  // next use of the communicator throws it.
  ~LocalSgd();
  LocalSgd(const LocalSgd&) = delete;
  LocalSgd& operator=(const LocalSgd&) = delete;

  // After each optimizer step.
  void step();
  // Averages a last time and lets gradients be averaged again. Does nothing when called again.
  void finish();

 private:
  void average_parameters();
  void restore_gradient_sync();

  Communicator& communicator_;
  std::vector<at::Tensor> parameters_;
  std::shared_ptr<ModelStrategy> strategy_;
  LocalSgdOptions options_;
  GradientSync gradient_sync_before_ = GradientSync::kOn;
  bool active_;
  int64_t steps_ = 0;
  int exceptions_at_begin_;
};

}  // namespace accelerate
