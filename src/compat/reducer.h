// c10d's gradient reducer, under one constructor for all supported versions of torch, and with what
// it knows of the state of a backward pass made visible.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <unordered_set>
#include <vector>

#include "compat/c10d.h"

namespace accelerate::compat {

// The nodes of an autograd graph, by identity.
using GraphNodes = std::unordered_set<const void*>;

// All that a backward pass from `loss` would run, but for what a node runs in a pass of its own.
GraphNodes graph_of(const at::Tensor& loss);

// Averages the gradients of one model. The reducer's hooks on the parameters run in every backward
// pass that reaches them; they reduce only between arm() and the end of that pass.
class GradientReducer final : public c10d::Reducer {
 public:
  using c10d::Reducer::Reducer;
  ~GradientReducer() noexcept(false) {
    end_watch();
    set_listener(nullptr);
  }

  // Before a backward pass that shall reduce. `outputs` are where to look for unused parameters
  // from, or nothing. Collective: may exchange the order of the buckets.
  void arm(const std::vector<at::Tensor>& outputs) {
    prepare_for_forward();  // counts the iterations that reduce
    rebuild_buckets();      // once, after the first
    prepare_for_backward(outputs);
    scale_ = 1.0 / process_group_->getSize();
  }
  // After arm(): this rank's gradients count `weight` / `total`, not 1 / world size. The ranks
  // agree on `total`.
  void set_share(int64_t weight, int64_t total);
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

  // set_(), which torch::load() calls, takes from a parameter the node that its gradients go
  // through, and with it the hooks of this reducer. Gives the nodes back, before a forward pass
  // makes new ones.
  void keep_accumulators();
  // A parameter that a forward pass has given a new node, so that its gradients bypass the reducer.
  std::optional<size_t> replaced_accumulator() const;

  // Whether parameter `index` gets a gradient in a pass over `graph`.
  bool is_reached(size_t index, const GraphNodes& graph) const {
    return graph.count(grad_accumulators_[index].get()) > 0;
  }

  // Instead of reducing while a pass runs: after arm(), let the pass go by and reduce afterwards
  // what .grad() then holds.
  void postpone() { disarm(); }
  void reduce_postponed();
  // Reduces what the first pass of a static graph has counted.
  void reduce_counted();

  // Before the first pass of a static graph: sees in which order its gradients come. libtorch looks
  // at the second pass only, and a run that goes on from a checkpoint would be a pass behind one
  // that did not stop: other buckets, and so another rounding of sums.
  void watch_first_pass();

  // Called with the number of a parameter whenever it has got a gradient, in any pass, by the
  // thread of that pass. Null: no more.
  void set_listener(std::function<void(size_t)> listener);

  // The exchanges of a pass that other ranks run and this one has nothing for: it adds zeros and
  // looks at no result. First what arm() exchanges, then the gradients, `postponed` or not.
  void answer_arm() { rebuild_buckets(); }
  void answer_reduction(bool postponed);

  // How often each parameter gets a gradient in one pass over a static graph, as the first pass has
  // found. A rank that only answered that pass takes it from another.
  std::vector<int64_t> static_graph_counts() const;
  void set_static_graph_counts(const std::vector<int64_t>& counts);

  // The parameters in the order of the buckets that follow the first pass; empty before it, and
  // where buckets stay as they are.
  std::vector<int64_t> gradient_order() const;
  // Lets the next arm() make these buckets, as if a pass had shown the order. Does nothing if that
  // is not an order of all parameters, or if a pass has shown one.
  void set_gradient_order(const std::vector<int64_t>& order);
  // Whether the buckets are those of the order. rebuild_buckets() makes them so; collective.
  bool follows_gradient_order() const { return has_rebuilt_bucket_; }

 private:
  class WeightedSum;

  struct Watch;

  // Whether the gradients of parameter `index` go through the node that this reducer hooks into.
  // Cheap: asked for every parameter, several times in each step. Its memory would not tell, since
  // set_() takes the node away even where the parameter gets back the memory that it had.
  bool has_own_accumulator(size_t index) const;
  // The parameters in the order that the first pass has shown.
  std::vector<size_t> end_watch();
  // Lets the next arm() make buckets in that order.
  void take_watched_order();
  void make_used_map();
  // The bucket at `index`, but full of zeros.
  c10d::GradBucket zeros_like_bucket(size_t index) const;

  std::shared_ptr<Watch> watch_;               // until the first pass of a static graph is over
  std::vector<std::uintptr_t> listener_keys_;  // of its hooks, by parameter; empty without one
  double scale_ = 1.0;        // what this rank's gradients are multiplied by, where is_weighted_
  bool is_weighted_ = false;  // has its own way to sum up; it cannot be taken away again
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
