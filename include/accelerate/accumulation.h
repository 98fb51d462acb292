// Gradient accumulation: several micro-batches for one step of the optimizer.
//
//   for (auto& batch : loader) {
//     auto window = accelerator.accumulate(model);
//     accelerator.backward(loss_fn(model(batch.data), batch.target));
//     optimizer.step();       // acts only in the last micro-batch of a window
//     optimizer.zero_grad();  // the same
//   }
#pragma once

#include <ATen/core/Tensor.h>

#include <concepts>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "accelerate/export.h"

namespace accelerate {

struct GradientAccumulationOptions {
  // Micro-batches of a window. Unset: ACCELERATE_GRADIENT_ACCUMULATION_STEPS, else 1.
  std::optional<int64_t> steps{};
  // A pass over a prepared loader ends its window: the last one may be shorter, and is divided by
  // the number of micro-batches that it really has. Otherwise windows continue into the next pass.
  bool sync_with_dataloader = true;
  // Average the gradients of the ranks in every micro-batch: less memory for some strategies, more
  // to send.
  bool sync_each_batch = false;
  // Let schedules count the micro-batches in which gradients only accumulate, as torch counts
  // steps; their rate does not change then.
  bool adjust_scheduler = true;
};

namespace detail {
// A prepared model, or the module itself behind a holder or a pointer.
template <class T>
concept HasParameters = requires(const T& model) {
  { model->parameters() } -> std::convertible_to<std::vector<at::Tensor>>;
};
}  // namespace detail

// The models that a loss is meant for: what prepare() returned, or the modules themselves.
class LossTargets {
 public:
  // All that the loss reaches.
  LossTargets() = default;
  template <detail::HasParameters First, detail::HasParameters... Others>
  // NOLINTNEXTLINE(google-explicit-constructor): {.only = generator}
  LossTargets(const First& first, const Others&... others) : parameters_(first->parameters()) {
    (add(others->parameters()), ...);
  }

  // Unset: all models.
  const std::optional<std::vector<at::Tensor>>& parameters() const { return parameters_; }

 private:
  void add(const std::vector<at::Tensor>& parameters) {
    parameters_->insert(parameters_->end(), parameters.begin(), parameters.end());
  }

  std::optional<std::vector<at::Tensor>> parameters_;
};

// How much a loss counts among the micro-batches of a window and the ranks, and which models it
// trains.
struct BackwardOptions {
  // The number of items (tokens, pixels) that the loss averages over: gradients become the mean
  // over all of them, in all micro-batches and on all ranks, as if it were one batch. Unset: every
  // micro-batch counts the same. At most one such loss per micro-batch; all losses of a window
  // have a weight, or none has.
  std::optional<double> weight{};
  // How many samples the loss stands for, where a join divides by them: JoinDivisor::kSamples.
  // Unset: what the batch of the innermost loop over a prepared loader says, else 1.
  std::optional<int64_t> samples{};
  // Keep the graph for another backward pass.
  bool retain_graph = false;
  // Write gradients only to the parameters of these models, as the generator's loss of a GAN
  // should, although it runs through the discriminator: {.only = generator} or {.only = {encoder,
  // generator}}. The same on all ranks. Throws UsageError if none of their parameters needs a
  // gradient.
  LossTargets only{};
};

namespace detail {

// Counts micro-batches. All ranks count alike.
class ACCELERATE_EXPORT AccumulationWindow {
 public:
  // Throws UsageError for steps below 1.
  AccumulationWindow(int64_t steps, bool sync_with_dataloader);

  // A micro-batch begins; `last_of_loader` if it is the last one of its loader.
  void begin_micro_batch(bool last_of_loader);

  // Whether the current micro-batch ends its window.
  bool sync_gradients() const { return sync_; }
  // Micro-batches of the current window that have begun; in the last one, the window's real length.
  int64_t begun() const { return begun_; }
  int64_t steps() const { return steps_; }
  bool sync_with_dataloader() const { return sync_with_dataloader_; }
  // What the losses of this micro-batch are divided by.
  int64_t divisor() const { return sync_ && begun_ > 0 ? begun_ : steps_; }
  // What gradients of earlier micro-batches, which were divided by steps(), are multiplied by when
  // this micro-batch begins: 1 unless it ends a short window.
  double correction() const { return static_cast<double>(steps_) / static_cast<double>(divisor()); }
  // The counter that the reference keeps.
  int64_t step() const { return step_; }
  void set_step(int64_t step) { step_ = step; }

  // The current position, for checkpoints.
  struct State {
    int64_t step = 0;
    int64_t begun = 0;
    bool sync = true;
  };
  State state() const { return {.step = step_, .begun = begun_, .sync = sync_}; }
  void restore(const State& state) {
    step_ = state.step;
    begun_ = state.begun;
    sync_ = state.sync;
  }

 private:
  int64_t steps_;
  bool sync_with_dataloader_;
  int64_t step_ = 0;
  int64_t begun_ = 0;
  bool sync_ = true;
};

}  // namespace detail

// One micro-batch: what Accelerator::accumulate returns. Its end lets the models average gradients
// in later backward passes again.
class [[nodiscard]] Accumulation {
 public:
  explicit Accumulation(std::function<void()> end) : end_(std::move(end)) {}
  Accumulation(const Accumulation&) = delete;
  Accumulation& operator=(const Accumulation&) = delete;
  ~Accumulation() { end_(); }

 private:
  std::function<void()> end_;
};

}  // namespace accelerate
