// How a model is spread over the ranks: the seam between the training loop and what happens to
// parameters and gradients. Adding a strategy adds an implementation, never an `if` elsewhere.
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
  // Let gradients live inside the buckets: saves one copy and its memory. Do not detach or replace
  // .grad() then.
  bool gradient_as_bucket_view = false;
  // Take the buffers (running statistics) of rank 0 before each forward pass.
  bool broadcast_buffers = true;
  // Make gradients smaller on their way between the ranks.
  CommHookOptions comm_hook{};
  // Notice ranks that train apart. A backward pass that did not go through Accelerator::backward()
  // is a UsageError at the next forward pass, batch of a prepared loader or save_state(); at the
  // end of a pass over the data in training and in save_state() parameters are compared over the
  // ranks by a few sums, and UsageError says which differ.
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

  // Before each forward pass. Collective where the strategy has something to exchange.
  virtual void before_forward() = 0;
  // Right before and right after the backward pass of `loss`, in which this model may or may not
  // take part. Collective like the pass itself. Where after_backward() did not follow, because the
  // pass threw, the model is unusable: later passes are a UsageError.
  virtual void before_backward(const at::Tensor& loss) = 0;
  virtual void after_backward() = 0;

  // Whether the next backward passes bring the gradients of the ranks together.
  virtual void set_gradient_sync(bool on) = 0;
  virtual bool gradient_sync() const = 0;
  // The next backward pass, and no other, brings them together in any case.
  virtual void sync_next_backward() = 0;

  // How many samples are behind each of the backward passes from here on; 1 if nobody says. Counts
  // with JoinDivisor::kSamples alone.
  virtual void set_batch_weight(int64_t /*samples*/) {}
  // What this model exchanges with the other ranks, for ranks that join in without data. Null if
  // it exchanges nothing. Owned by the model.
  virtual detail::JoinMember* join_member() { return nullptr; }

  // Throws UsageError if `parameter` belongs to this model and its gradient holds something that
  // did not go through before_backward() and after_backward(), but should have.
  virtual void require_synchronised(const at::Tensor& parameter) const = 0;

  // Throws UsageError if gradients of this model came in a backward pass that went past
  // before_backward() and after_backward(), and were neither dropped since nor meant to stay on
  // this rank. `where` is what the user called.
  virtual void require_no_local_pass(const char* /*where*/) const {}
  // Such passes, as far as they have come, were meant to stay on this rank.
  virtual void accept_local_passes() {}
  // The gradient of `parameter` is thrown away. Throws UsageError if it came in such a pass and the
  // parameter was changed since: by a step that went past the ranks.
  virtual void drop_gradient(const at::Tensor& /*parameter*/) {}
  // Whether all ranks should hold the same parameters at the moment.
  virtual bool is_replicated() const { return false; }
  // Backward passes so far that brought the gradients of the ranks together.
  virtual int64_t reduced_passes() const { return 0; }

  // The order in which gradients travel between the ranks, once a pass has shown it: numbers of
  // trainable parameters; empty where there is none. Sums over more than two ranks are rounded
  // by it, so a run that continues must take it over before its first pass. Not collective, but all
  // ranks must set the same.
  virtual std::vector<int64_t> gradient_order() const { return {}; }
  virtual void set_gradient_order(const std::vector<int64_t>& /*order*/) {}

  // Lets go of what the strategy holds. Where gradients need it, later passes are a UsageError.
  virtual void release() = 0;
  // False once the model was released or a backward pass of it threw: it must be prepared again.
  virtual bool usable() const = 0;

 protected:
  // For before_forward().
  void run_before_next_forward() {
    if (before_next_forward_) std::exchange(before_next_forward_, nullptr)();
  }

 private:
  std::function<void()> before_next_forward_;
};

class ACCELERATE_EXPORT Strategy {
 public:
  virtual ~Strategy() = default;
  virtual std::string_view name() const = 0;

  // Takes a model whose parameters are on their device. Collective: all ranks, same order, same
  // model. Throws UsageError on all ranks alike if their models differ.
  virtual std::shared_ptr<ModelStrategy> wrap(std::shared_ptr<torch::nn::Module> module) = 0;

  // Runs `body`, then answers the exchanges of `models` for as long as other ranks still run
  // theirs, and at last gives all ranks the same models. `others` are prepared too, but the body
  // must not train them: UsageError. See Accelerator::join_uneven_inputs.
  virtual void join_uneven_inputs(const std::function<void()>& body, const JoinOptions& options,
                                  const std::vector<std::shared_ptr<ModelStrategy>>& models,
                                  const std::vector<std::shared_ptr<ModelStrategy>>& others) = 0;
};

// The strategy for this communicator: "single" for one process, "ddp" for several.
ACCELERATE_EXPORT std::unique_ptr<Strategy> make_strategy(
    std::shared_ptr<Communicator> communicator, const DdpOptions& options);

}  // namespace accelerate
