// What models have in common whose gradients the ranks exchange, beside the exchange itself.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "accelerate/communicator.h"

namespace torch::nn {
class Module;
}

namespace accelerate {

// Gives all ranks the buffers of rank 0. Running statistics change in training only, so one
// broadcast after the last training pass serves all evaluation that follows.
class BufferBroadcast {
 public:
  BufferBroadcast(const torch::nn::Module& module, std::shared_ptr<Communicator> ranks);
  // Before a forward pass of the module; `averages` tells whether ranks exchange gradients now.
  // Collective.
  void before_forward(const torch::nn::Module& module, bool averages);

 private:
  std::shared_ptr<Communicator> ranks_;
  std::vector<at::Tensor> buffers_;
  bool changed_ = false;
};

// The parameters that were frozen when a model was prepared. Nobody exchanges their gradients.
class FrozenParameters {
 public:
  explicit FrozenParameters(const torch::nn::Module& module);
  // Throws UsageError if one of them needs a gradient now.
  void require_frozen() const;

 private:
  std::vector<std::pair<std::string, at::Tensor>> frozen_;
};

// Whether there are gradients of this rank alone that did not go through Accelerator::backward().
class LocalGradients {
 public:
  // One came. Any thread.
  void note() { any_ = true; }
  // Those so far were meant to stay on this rank.
  void accept() {
    if (any_) are_meant_ = true;
  }
  // They were averaged or dropped.
  void forget() { any_ = are_meant_ = false; }

  bool any() const { return any_; }
  bool any_by_mistake() const { return any_ && !are_meant_; }
  // Throws UsageError if there are any. Of an update by them.
  void require_none() const;

 private:
  std::atomic<bool> any_ = false;
  bool are_meant_ = false;
};

// Throws UsageError at `where` because a model cannot be used any more.
[[noreturn]] void refuse_model(const char* why, const char* where);
inline constexpr const char* kModelReleased = "this model was released by free_memory()";
inline constexpr const char* kModelPassFailed = "an earlier backward pass of this model failed";

}  // namespace accelerate
