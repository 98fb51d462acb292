// The state of a libtorch optimizer, with the keys of Python's state_dict().
#pragma once

#include <string>
#include <vector>

#include "accelerate/export.h"
#include "accelerate/torch_archive.h"

namespace torch::optim {
class Optimizer;
}

namespace accelerate {

struct OptimizerStateOptions {
  // Entry i is added to parameter group i: what Python's schedulers keep there (initial_lr, and
  // max_lr and the like for some). None, or as many as there are groups.
  std::vector<TorchDict> group_entries{};
};

// The state of SGD, Adam, AdamW, Adagrad, RMSprop and LBFGS as the optimizer of the same name in
// Python returns it from state_dict(): {state: {0: {step, exp_avg, …}}, param_groups: [{lr, betas,
// …, params: [0, 1]}]}. Options that C++ does not have get the default that Python gives them.
//
// The tensors are the optimizer's own, on its devices: write or copy them before the next step().
// Throws CheckpointError for other types, also for those derived from the ones above: what they
// keep is unknown to the library.
ACCELERATE_EXPORT TorchValue optimizer_state(const torch::optim::Optimizer& optimizer,
                                             const OptimizerStateOptions& options = {});

// Whether load_optimizer_state() would take the state. Throws CheckpointError that lists every
// parameter, group and option that does not fit, with `where` (a file) as its place; changes
// nothing. Options that only say how Python computes (foreach, fused, capturable, differentiable)
// and what its schedulers keep in the groups are passed over; an option that would change the
// numbers and that C++ does not have (maximize=True, another kind of weight decay) does not fit.
ACCELERATE_EXPORT void check_optimizer_state(const torch::optim::Optimizer& optimizer,
                                             const TorchValue& state,
                                             const std::string& where = {});

// Replaces options and state of the optimizer by those given, after the same check: on an error
// nothing is changed. State tensors are copied to the device, dtype and layout of their parameter.
ACCELERATE_EXPORT void load_optimizer_state(torch::optim::Optimizer& optimizer,
                                            const TorchValue& state, const std::string& where = {});

}  // namespace accelerate
