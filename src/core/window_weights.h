// The weights of the losses of one window of gradient accumulation.
#pragma once

#include <optional>

namespace torch::nn {
class Module;
}

namespace accelerate {

class Communicator;

class WindowWeights {
 public:
  void begin_micro_batch() { weighted_in_micro_batch_ = false; }
  // Notes the weight of the next loss. Throws UsageError for one below 0 or not finite, for a
  // second one in a micro-batch, and where losses with and without weight meet in one window.
  void add(std::optional<double> weight);

  bool weighted() const { return losses_ > 0 && weighted_; }
  // The sum over all ranks, divided by their number: what the weighted gradients, which the ranks
  // average, must be divided by. Collective.
  double mean_over(Communicator& ranks) const;

 private:
  int losses_ = 0;
  bool weighted_ = false;
  bool weighted_in_micro_batch_ = false;
  double sum_ = 0;
};

// Multiplies the gradients that `module` has by `factor`.
void scale_gradients(torch::nn::Module& module, double factor);

}  // namespace accelerate
