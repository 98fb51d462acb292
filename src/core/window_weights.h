// The weights of the losses of one window of gradient accumulation.
#pragma once

#include <cstdint>
#include <optional>

namespace torch::nn {
class Module;
}

namespace accelerate {

class Communicator;

class WindowWeights {
 public:
  void begin_micro_batch() { state_.weighted_in_micro_batch = false; }
  // Notes the weight of the next loss. Throws UsageError for one below 0 or not finite, for a
  // second one in a micro-batch, and where losses with and without weight meet in one window.
  void add(std::optional<double> weight);

  bool weighted() const { return state_.losses > 0 && state_.weighted; }
  // The sum over all ranks, divided by their number: what the weighted gradients, which the ranks
  // average, must be divided by. Collective.
  double mean_over(Communicator& ranks) const;

  // What was noted so far, for checkpoints.
  struct State {
    int64_t losses = 0;
    bool weighted = false;
    bool weighted_in_micro_batch = false;
    double sum = 0;
  };
  const State& state() const { return state_; }
  void restore(const State& state) { state_ = state; }

 private:
  State state_;
};

// Multiplies the gradients that `module` has by `factor`.
void scale_gradients(torch::nn::Module& module, double factor);

}  // namespace accelerate
