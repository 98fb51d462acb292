// What the known kinds of optimizers keep, and how Python calls it.
#pragma once

#include <torch/optim/optimizer.h>

#include <memory>
#include <string>

#include "accelerate/torch_archive.h"
#include "checkpoint/optimizer/optimizer_state_problems.h"

namespace accelerate {

// One kind of optimizer: its options and the state of a parameter, in C++ and as entries of the
// dicts that Python's optimizer of that name has. Without state of its own.
class OptimizerFamily {
 public:
  using Options = torch::optim::OptimizerOptions;
  using ParamState = torch::optim::OptimizerParamState;
  enum class Tensors { kCheck, kCopy };

  virtual ~OptimizerFamily() = default;
  virtual const char* name() const = 0;

  // In the order of Python; without "params".
  virtual TorchDict group_entries(const Options& options) const = 0;
  virtual TorchDict state_entries(const ParamState& state) const = 0;

  // The options that the group says; reports what does not fit. Entries that only say how Python
  // computes, or that its schedulers keep there, are passed over.
  virtual std::unique_ptr<Options> read_group(const TorchDict& group, const Options& present,
                                              const std::string& subject,
                                              StateProblems& problems) const = 0;
  virtual void assign(Options& target, const Options& source) const = 0;
  // The state of a parameter. With kCheck no tensor is copied: the result is of no use then.
  virtual std::unique_ptr<ParamState> read_state(const TorchDict& entries,
                                                 const at::Tensor& parameter,
                                                 const Options& options, Tensors tensors,
                                                 const std::string& subject,
                                                 StateProblems& problems) const = 0;
  // Whether step() fails for a parameter without state.
  virtual bool needs_all_states() const = 0;
};

// nullptr for other types, also for those derived from the known ones.
const OptimizerFamily* find_optimizer_family(const torch::optim::Optimizer& optimizer);

}  // namespace accelerate
