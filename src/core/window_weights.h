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
  void begin_micro_batch() { weighted_in_micro_batch_ = false; }
  // Notes the weight of the next loss. Throws UsageError for one below 0 or not finite, for a
  // second one in a micro-batch, and where losses with and without weight meet in one window.
  void add(std::optional<double> weight);

  bool weighted() const { return losses_ > 0 && weighted_; }
  // What the weights of a window of `micro_batches` are divided by until it ends, so that weighted
  // losses stay as large as plain ones: half precision could not hold the gradients of a loss that
  // is multiplied by thousands of tokens. Of this rank alone; the first weight decides.
  double unit(int64_t micro_batches) const {
    return first_ > 0 ? first_ * static_cast<double>(micro_batches) : 1;
  }
  // The sum over all ranks, divided by their number: what the weighted gradients, which the ranks
  // average, must be divided by. Collective.
  double mean_over(Communicator& ranks) const;

 private:
  int losses_ = 0;
  bool weighted_ = false;
  bool weighted_in_micro_batch_ = false;
  double first_ = 0;  // that is not 0
  double sum_ = 0;
};

// Multiplies the gradients that `module` has by `factor`.
void scale_gradients(torch::nn::Module& module, double factor);

}  // namespace accelerate
