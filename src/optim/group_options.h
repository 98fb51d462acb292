// Options of a parameter group that two owners may change.
#pragma once

#include <string>
#include <vector>

namespace torch::optim {
class OptimizerOptions;
}

namespace accelerate {

// Whether their fields are known: those of SGD, Adam, AdamW, Adagrad, RMSprop and LBFGS.
bool can_merge_options(const torch::optim::OptimizerOptions& options);

// Brings `one` and `other` to the same values, field by field: what one side has changed since they
// were both as in `known`, the other takes over, and `known` with them. Returns the names of the
// fields that both have changed to different values; those stay as they are. All are of one type,
// which can_merge_options() knows.
std::vector<std::string> merge_options(torch::optim::OptimizerOptions& one,
                                       torch::optim::OptimizerOptions& other,
                                       torch::optim::OptimizerOptions& known);

}  // namespace accelerate
