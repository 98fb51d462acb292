// All parameters of a module in one stretch of memory, and AdamW that updates them at once.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/optim/adamw.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "accelerate/export.h"
#include "accelerate/state_dict.h"

namespace torch::nn {
class Module;
}

namespace accelerate {

class Communicator;

struct FlatParametersOptions {
  // What the parameters become: kFloat, kHalf or kBFloat16.
  at::ScalarType dtype = at::kBFloat16;
  // Keep a float32 copy that updates are made on. Without it updates are made on the parameters
  // themselves: choose stochastic rounding then.
  bool masters = true;
};

// Moves the parameters of `module` into one vector, in `dtype`, and gives each a gradient that is a
// part of one float32 vector: gradients add up in float32 though parameters are in half precision.
// Those with two or more dimensions come first. Each parameter appears once, however many
// modules share it. Parameters stay the same tensors; those that need no gradient are left alone.
//
// Make it when the module is on its device, and before optimizers look at the parameters. The
// module keeps working as any other, but its zero_grad(), and anything that replaces gradients,
// bypasses the float32 vector: the next update collects what it finds. Modules must not be moved,
// cast, or given other tensors afterwards, as torch::load() does: the next update then throws
// UsageError. One thread at a time.
class ACCELERATE_EXPORT FlatParameters {
 public:
  explicit FlatParameters(torch::nn::Module& module, const FlatParametersOptions& options = {});

  const std::vector<at::Tensor>& parameters() const { return parameters_; }
  // The vectors. Places between parameters are zero.
  const at::Tensor& values() const { return values_; }
  const at::Tensor& gradient() const { return gradient_; }
  // Float32; undefined without masters or where the parameters are float32 themselves.
  const at::Tensor& masters() const { return masters_; }
  // How many elements at the beginning belong to parameters of two or more dimensions.
  int64_t matrix_numel() const { return matrix_numel_; }

  // Sets all gradients to zero, in one pass, and puts them back where they were replaced.
  void zero_grad();
  // Collects gradients that were not added in place. Called by the optimizer. Throws UsageError
  // if the parameters are no longer in the vector.
  void collect_gradients();
  // Replaces the gradient by its mean over the ranks, in one exchange after the backward pass. Use
  // it instead of a prepared model where there are several ranks. Collective.
  void average_gradients(Communicator& communicator);
  // Gives all ranks the parameters of rank 0. Collective.
  void broadcast(Communicator& communicator);
  // Copies the masters into the parameters: after masters were loaded.
  void refresh_from_masters();

 private:
  void require_in_place() const;

  std::vector<at::Tensor> parameters_;
  std::vector<at::Tensor> gradient_parts_;
  at::Tensor values_;
  at::Tensor gradient_;
  at::Tensor masters_;
  int64_t matrix_numel_ = 0;
};

struct FlatAdamWOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  // For parameters of two or more dimensions alone, as language models have it.
  double weight_decay = 1e-2;
  // Above 0: gradients are scaled so that their norm is at most this, inside the update.
  double max_norm = 0.0;
  // Round updated bfloat16 parameters up or down at random, so that small updates count on average.
  // `seed`, the number of the update and the position of a parameter determine it, on CPUs and GPUs
  // alike.
  bool stochastic_rounding = false;
  uint64_t seed = 0;
};

// AdamW over FlatParameters: one kernel updates all, and reads the learning rate, the number of the
// step and the norm from the device, so nothing waits and a CUDA graph can hold it. Schedulers and
// prepare() take it like any other optimizer: they set lr() of its one group of options.
class ACCELERATE_EXPORT FlatAdamW : public torch::optim::Optimizer {
 public:
  explicit FlatAdamW(std::shared_ptr<FlatParameters> parameters,
                     const FlatAdamWOptions& options = {});

  // Also clips, see max_norm. Leaves gradients as they are.
  at::Tensor step(LossClosure closure = nullptr) override;
  void zero_grad() { flat_->zero_grad(); }

  // Norm of the gradient at the last step, before clipping: float32 on the device. Undefined
  // without max_norm and before the first step.
  const at::Tensor& last_norm() const { return norm_; }
  // A float32 scalar on the device: where it is not zero, step() changes nothing. Undefined: all
  // steps are made.
  void skip_where(const at::Tensor& found_inf) { found_inf_ = found_inf; }

  const std::shared_ptr<FlatParameters>& flat() const { return flat_; }
  // Number of updates made. Waits for the device.
  int64_t steps() const;
  // How often step() was called. Waits for nothing.
  int64_t step_calls() const { return step_calls_; }
  // All that the next update depends on, for Accelerator::register_for_checkpointing(): the
  // parameters as "masters", and as "values" if there are no masters or the parameters were rounded
  // stochastically, then "exp_avg", "exp_avg_sq", "step" and "lr". The tensors are those of the
  // optimizer: clone them to come back to this state later, as the accelerator does before it loads
  // another.
  StateDict state_dict() const;
  // Restores such a state, the parameters included. Throws CheckpointError that names what is
  // missing or of another size; then nothing has changed.
  void load_state_dict(const StateDict& state);
  // Writes the learning rate of the options to the device, where it changed. step() does it, but
  // not inside a graph: whoever replays one calls this first.
  void refresh_learning_rate();

 private:
  at::Tensor gradient_norm() const;

  std::shared_ptr<FlatParameters> flat_;
  FlatAdamWOptions options_;
  at::Tensor exp_avg_;
  at::Tensor exp_avg_sq_;
  at::Tensor step_;
  at::Tensor learning_rate_;
  double learning_rate_on_device_;
  at::Tensor found_inf_;
  at::Tensor norm_;
  int64_t step_calls_ = 0;
};

}  // namespace accelerate
