// How a model is distributed over the ranks: the interface between the training loop and what
// happens to parameters and gradients. Adding a strategy adds an implementation, never an `if`
// elsewhere.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "accelerate/comm_hook.h"
#include "accelerate/export.h"
#include "accelerate/join.h"

namespace torch::nn {
class Module;
}

namespace accelerate {

class Communicator;
namespace detail {
class JoinMember;
}

// Options of the strategy that replicates the model and averages gradients (DDP).
struct DdpOptions {
  // Size of the buckets in which gradients are averaged while backward still runs.
  double bucket_cap_mb = 25.0;
  // Look, in each backward pass, for parameters that take no part in the loss. Needed where the
  // graph leaves some out; costs a walk over the graph.
  bool find_unused_parameters = false;
  // Promise that all passes have the same graph: unused parameters are found once. The first pass
  // is averaged even inside no_sync.
  bool static_graph = false;
  // Keep gradients inside the buckets: saves one copy and its memory. Do not detach or replace
  // .grad() then.
  bool gradient_as_bucket_view = false;
  // Take the buffers (running statistics) of rank 0 before each forward pass.
  bool broadcast_buffers = true;
  // Compress gradients when the ranks exchange them.
  CommHookOptions comm_hook{};
  // Detect ranks that diverge. A backward pass that did not go through Accelerator::backward()
  // is a UsageError at the next forward pass, batch of a prepared loader or save_state(); at the
  // end of a pass over the data in training and in save_state() parameters are compared across
  // ranks by a few sums, and a UsageError names those that differ.
  bool check_replicas = true;
};

// One model under a strategy. Owned together by the accelerator and the prepared model.
class ACCELERATE_EXPORT ModelStrategy {
 public:
  virtual ~ModelStrategy() = default;

  // What is called once, right before the next forward pass, where the strategy has several ranks.
  void set_before_next_forward(std::function<void()> call) {
    before_next_forward_ = std::move(call);
  }

  // What is called before each forward pass, wherever the model runs.
  void set_before_each_forward(std::function<void()> call) {
    before_each_forward_ = std::move(call);
  }

  // Before each forward pass. Collective where the strategy has something to exchange.
  void before_forward() {
    if (before_each_forward_) before_each_forward_();
    begin_forward();
  }
  // Right before and right after the backward pass of `loss`, in which this model may or may not
  // take part. Collective like the pass itself. Where after_backward() did not follow, because the
  // pass threw, the model is unusable: later passes are a UsageError.
  virtual void before_backward(const at::Tensor& loss) = 0;
  virtual void after_backward() = 0;

  // Whether the next backward passes average the gradients over the ranks.
  virtual void set_gradient_sync(bool on) = 0;
  virtual bool gradient_sync() const = 0;
  // The next backward pass, and only that one, averages them in any case.
  virtual void sync_next_backward() = 0;

  // How many samples each backward pass from here on stands for; 1 by default. Only used with
  // JoinDivisor::kSamples.
  virtual void set_batch_weight(int64_t /*samples*/) {}
  // What this model exchanges with the other ranks, for ranks that join in without data. Null if
  // it exchanges nothing. Owned by the model.
  virtual detail::JoinMember* join_member() { return nullptr; }

  // Throws UsageError if `parameter` belongs to this model and its gradient holds something that
  // did not go through before_backward() and after_backward(), but should have.
  virtual void require_synchronised(const at::Tensor& parameter) const = 0;

  // Throws UsageError if gradients of this model came from a backward pass that bypassed
  // before_backward() and after_backward(), and were neither dropped since nor meant to stay on
  // this rank. `where` is what the user called.
  virtual void require_no_local_pass(const char* /*where*/) const {}
  // Such passes, as far as they have come, were meant to stay on this rank.
  virtual void accept_local_passes() {}
  // The gradients of `parameters`, which may belong to other models, are about to be dropped. Such
  // passes are forgotten once none of their gradients is left. Throws UsageError if a parameter was
  // changed after such a pass, by a step that bypassed the ranks.
  virtual void drop_gradients(const std::vector<at::Tensor>& /*parameters*/) {}
  // Whether all ranks should hold the same parameters at the moment.
  virtual bool is_replicated() const { return false; }
  // Backward passes so far that averaged the gradients over the ranks.
  virtual int64_t reduced_passes() const { return 0; }

  // The order in which the ranks exchange gradients, once a pass has shown it: numbers of
  // trainable parameters; empty where there is none. Sums over more than two ranks are rounded
  // by it, so a resumed run must set it before its first pass. Not collective, but all
  // ranks must set the same.
  virtual std::vector<int64_t> gradient_order() const { return {}; }
  virtual void set_gradient_order(const std::vector<int64_t>& /*order*/) {}

  // Releases what the strategy holds. Later passes that need it throw UsageError.
  virtual void release() = 0;
  // False once the model was released or a backward pass of it threw: it must be prepared again.
  virtual bool usable() const = 0;

 protected:
  // What the strategy itself does before each forward pass.
  virtual void begin_forward() = 0;
  // For begin_forward().
  void run_before_next_forward() {
    if (before_next_forward_) std::exchange(before_next_forward_, nullptr)();
  }

 private:
  std::function<void()> before_next_forward_;
  std::function<void()> before_each_forward_;
};

class ACCELERATE_EXPORT Strategy {
 public:
  virtual ~Strategy() = default;
  virtual std::string_view name() const = 0;

  // Takes a model whose parameters are on their device. Collective: all ranks, same order, same
  // model. Throws UsageError on all ranks alike if their models differ.
  virtual std::shared_ptr<ModelStrategy> wrap(std::shared_ptr<torch::nn::Module> module) = 0;

  // Runs `body`, then answers the exchanges of `models` for as long as other ranks still run
  // theirs, and finally gives all ranks the same models. `others` are prepared too, but the body
  // must not train them: UsageError. See Accelerator::join_uneven_inputs.
  virtual void join_uneven_inputs(const std::function<void()>& body, const JoinOptions& options,
                                  const std::vector<std::shared_ptr<ModelStrategy>>& models,
                                  const std::vector<std::shared_ptr<ModelStrategy>>& others) = 0;
};

// The strategy for this communicator: "single" for one process, "ddp" for several.
ACCELERATE_EXPORT std::unique_ptr<Strategy> make_strategy(
    std::shared_ptr<Communicator> communicator, const DdpOptions& options);

}  // namespace accelerate
