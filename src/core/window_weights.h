// The weights of the losses of one window of gradient accumulation.
#pragma once

#include <cstdint>
#include <optional>

namespace accelerate {

class Communicator;

class WindowWeights {
 public:
  void begin_window();
  void begin_micro_batch() { state_.weighted_in_micro_batch = false; }
  // Notes the weight of the next loss. Throws UsageError for one below 0 or not finite, for a
  // second one in a micro-batch, and where losses with and without weight meet in one window. In
  // the `last` micro-batch a weight that is no good is left for mean_over() to find, on all ranks.
  void add(std::optional<double> weight, bool last);

  bool weighted() const { return state_.losses > 0 && state_.weighted; }
  // The sum over all ranks, divided by their number: what the weighted gradients, which the ranks
  // average, must be divided by. Collective. Throws UsageError on all ranks alike if that is 0 or
  // a rank has a weight that is no good.
  double mean_over(Communicator& ranks);
  // What weights are divided by until their window ends, so that weighted losses stay about as
  // large as plain ones: half precision could not hold the gradients of a loss that is multiplied
  // by thousands of tokens. The same on all ranks, and a power of two, which leaves no trace in the
  // sums: near the mean of the window before. Collective at the first call of all.
  double unit(Communicator& ranks);

  // What was noted so far, for checkpoints. The unit is the same on all ranks.
  struct State {
    int64_t losses = 0;
    bool weighted = false;
    bool weighted_in_micro_batch = false;
    double sum = 0;
    double unit = 0;  // 0: not known yet
  };
  const State& state() const { return state_; }
  void restore(const State& state) { state_ = state; }

 private:
  State state_;
};

}  // namespace accelerate
