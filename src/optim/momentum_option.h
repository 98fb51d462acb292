// The momentum of a parameter group, whatever its optimizer calls it.
#pragma once

#include <torch/optim/optimizer.h>

namespace accelerate {

// How to get at the option; of SGD and RMSprop it is the momentum, of Adam and AdamW beta1.
struct MomentumOption {
  double (*read)(const torch::optim::OptimizerOptions& options);
  void (*write)(torch::optim::OptimizerOptions& options, double value);
  bool is_beta1;
};

// nullptr for options that have neither.
const MomentumOption* find_momentum_option(const torch::optim::OptimizerOptions& options);

}  // namespace accelerate
