// c10d's gradient reducer, under one constructor for all supported versions of torch, and with what
// it knows of the state of a backward pass made visible.
#pragma once

#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <vector>

#include "compat/c10d.h"

namespace accelerate::compat {

// Averages the gradients of one model. The reducer's hooks on the parameters run in every backward
// pass that reaches them; they reduce only between arm() and the end of that pass.
class GradientReducer final : public c10d::Reducer {
 public:
  using c10d::Reducer::Reducer;

  // Before a backward pass that shall reduce. `outputs` are where to look for unused parameters
  // from, or nothing. Collective: may exchange the order of the buckets.
  void arm(const std::vector<at::Tensor>& outputs) {
    prepare_for_forward();  // counts the iterations that reduce
    rebuild_buckets();      // once, after the first
    prepare_for_backward(outputs);
  }
  // Still armed: none of this model's gradients came in the pass. Then disarm() it.
  bool is_armed() const { return expect_autograd_hooks_; }
  void disarm() { expect_autograd_hooks_ = false; }

  // Gradients came and were not reduced: in a pass that was not armed, or in the first pass of a
  // static graph, which only counts them.
  bool holds_unreduced_gradients() const { return first_autograd_hook_called_; }
  void set_holds_unreduced_gradients(bool value) { first_autograd_hook_called_ = value; }
  // Some parameters got their gradient in this pass, others did not: the reduction is stuck.
  bool is_incomplete() const { return require_finalize_; }
  // A static graph whose first pass has not come yet.
  bool awaits_first_pass() const { return static_graph_ && num_bwd_calls_ == 0; }
};

struct ReducerOptions {
  size_t bucket_bytes_cap = c10d::kDefaultBucketBytesCap;
  bool find_unused_parameters = false;
  bool gradient_as_bucket_view = false;
  bool static_graph = false;
};

// A reducer and the logger that it reports to, which it needs but does not own.
struct ReducerAndLogger {
  std::shared_ptr<GradientReducer> reducer;
  std::shared_ptr<c10d::Logger> logger;
};

// A reducer of the gradients of `parameters`, whose names are for messages only. Parameter i gets
// sparse gradients where `sparse[i]`.
ReducerAndLogger make_reducer(std::vector<at::Tensor> parameters,
                              const std::vector<std::string>& names, std::vector<bool> sparse,
                              c10::intrusive_ptr<c10d::ProcessGroup> group,
                              const ReducerOptions& options);

}  // namespace accelerate::compat
