// Parameters of prepared optimizers that no prepared model holds.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "accelerate/communicator.h"
#include "accelerate/errors.h"
#include "strategy/ddp/replica_digest.h"

namespace torch::nn {
class Module;
}

namespace accelerate {

// Those of one optimizer. Nobody averages their gradients, so ranks that give them gradients of
// their own data train apart. Equal changes on all ranks are fine. Called by the thread of the
// training.
class LooseParameters {
 public:
  // `number` is that of the optimizer among all that were prepared, the same on all ranks.
  LooseParameters(std::shared_ptr<Communicator> ranks, size_t number)
      : ranks_(std::move(ranks)), number_(number) {}

  // What the optimizer updates. Those that it did not have before are loose, unless a model of
  // `held_by` holds them.
  void update(const std::vector<at::Tensor>& parameters,
              const std::vector<const torch::nn::Module*>& held_by);
  // A model was prepared.
  void remove_those_of(const torch::nn::Module& module);
  // How many of the optimizer's parameters update() has seen.
  size_t known() const { return known_; }
  bool empty() const { return tensors_.empty(); }

  // These throw UsageError on all ranks if the ranks differ: in the gradients of the first step, or
  // in the parameters at the end of a pass over the data. Not collective: a rank that does one of
  // them alone meets nobody.
  void before_step();
  // The same for gradients of parameters that a model holds, but that no backward pass of the
  // accelerator has made. Between before_step() and the step; looks at the first call alone.
  void require_same_assigned(const NamedValues& gradients);
  bool compared_assigned() const { return compared_assigned_; }
  void at_end_of_pass(const char* where);

  // "parameter 3 of optimizer 0" and so on.
  const NamedValues& values() const { return tensors_; }
  // What to throw because of the difference that `text` tells.
  static ErrorInfo error(const std::string& text, const char* where);

 private:
  std::string key(const std::string& kind) const;

  std::shared_ptr<Communicator> ranks_;
  size_t number_;
  size_t known_ = 0;
  NamedValues tensors_;
  int64_t steps_ = 0;
  int64_t ends_ = 0;  // of passes since the last step
  bool compared_gradients_ = false;
  bool compared_assigned_ = false;
  bool told_of_rounding_ = false;
};

}  // namespace accelerate
