// How several ranks train a model together: what happens to parameters, gradients and updates on
// the way through the training loop. Accelerate comes with "single" and "ddp"; a strategy of your
// own implements Strategy, and what of ModelStrategy and OptimizerStrategy it needs, and is chosen
// by AcceleratorOptions::strategy. Nothing else in a program changes.
//
// An accelerator makes one Strategy, which makes a ModelStrategy for each prepared model and an
// OptimizerStrategy for each prepared optimizer. They are called by the thread of the training, one
// call at a time, unless a call says otherwise. Calls marked collective are made by all ranks in
// the same order and may exchange something; in all others a rank may be alone. Where a call
// refuses something it throws UsageError, to which the accelerator adds the rank; what is wrong on
// one rank only must be agreed upon first where the others would wait.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "accelerate/clip.h"
#include "accelerate/export.h"
#include "accelerate/full_parameters.h"
#include "accelerate/join.h"
#include "accelerate/state_dict.h"
#include "accelerate/tensor_box.h"

namespace torch::nn {
class Module;
}
namespace torch::optim {
class Optimizer;
}

namespace accelerate {

class Communicator;
class OptimizerStep;

// What becomes of the gradients of a backward pass.
enum class GradientSync {
  // The ranks bring them together, in the pass or right after it.
  kOn,
  // They add up on their rank, until a later pass brings them together: inside a window of
  // accumulation.
  kPaused,
  // They stay on their rank: no_sync() and LocalSgd. Passes that bypass Accelerator::backward()
  // are allowed.
  kLocal,
};

// What the exchange of one model's gradients has learnt from the passes so far. A value, but for
// the tensors, which share the memory of the model's.
struct ExchangeState {
  // In which order gradients travel: numbers of trainable parameters, the same on all ranks; empty
  // where no pass has shown it. Sums over more than two ranks are rounded by it, so a resumed run
  // needs the same.
  std::vector<int64_t> gradient_order{};
  // Whether they travel in that order already.
  bool follows_order = false;
  // What this rank keeps for itself, such as what a compression has left out so far. A run on
  // another number of ranks begins without it.
  StateDict own{};
};

// Keeps an ExchangeState in checkpoints. One for each model that has something to keep.
class ACCELERATE_EXPORT ExchangeMemory {
 public:
  virtual ~ExchangeMemory() = default;

  virtual ExchangeState state() const = 0;
  // Looks at a state that restore() will be given; changes nothing. Returns what of it cannot be
  // taken over, for the log; empty if there is nothing. Throws CheckpointError if it is damaged.
  virtual std::string check(const ExchangeState& state) const = 0;
  // Goes on from `state`, before the next pass and while there are no gradients. Collective where
  // `state.follows_order`.
  virtual void restore(const ExchangeState& state) = 0;
};

// One model under a strategy, owned by the accelerator and the prepared model together. This class
// itself is a model whose gradients nobody else has a part in.
class ACCELERATE_EXPORT ModelStrategy {
 public:
  ModelStrategy() = default;
  virtual ~ModelStrategy() = default;
  ModelStrategy(const ModelStrategy&) = delete;
  ModelStrategy& operator=(const ModelStrategy&) = delete;

  // Called by the prepared model before each forward pass: what the accelerator does then, and
  // before_forward(). After it, however it ends, comes end_forward().
  void begin_forward() {
    if (on_forward_) on_forward_();
    before_forward();
  }
  void end_forward() {
    if (after_forward_) after_forward_();
  }
  void set_on_forward(std::function<void()> before, std::function<void()> after = {}) {
    on_forward_ = std::move(before);
    after_forward_ = std::move(after);
  }

  // Right before and right after the backward pass of `loss`, in which this model may or may not
  // take part. Collective like the pass itself. Where the pass throws, after_backward() does not
  // follow.
  virtual void before_backward(const at::Tensor& /*loss*/) {}
  virtual void after_backward() {}

  // Counts from the next backward pass on.
  virtual void set_gradient_sync(GradientSync sync) { gradient_sync_ = sync; }
  GradientSync gradient_sync() const { return gradient_sync_; }
  // The next backward pass, and only that one, is made as with kOn.
  virtual void sync_next_backward() {}

  // Releases what the strategy holds. Later passes that need it throw UsageError.
  virtual void release() {}
  // False once it was released or a pass of it failed: the model must be prepared again.
  virtual bool usable() const { return true; }

  // Null where there is nothing to keep. Owned by the model.
  virtual ExchangeMemory* exchange_memory() { return nullptr; }

  // Where the exact value of a parameter is: what checkpoints keep and load, and LocalSgd averages.
  // The tensor itself, unless the model computes with a narrower copy of it. Any tensor of the
  // module may be asked for.
  virtual at::Tensor master_of(const at::Tensor& tensor) const { return tensor; }
  // What master_of() returned was written to.
  virtual void masters_changed() {}

  // For a model of which each rank keeps a part: what master_of() gives for each tensor that is in
  // pieces. Checkpoints keep the pieces with their place in the whole, so that a run on another
  // number of ranks, or with another strategy, finds what it needs; save_model() and
  // get_state_dict() put them together. All ranks name the same tensors and together hold every
  // element; several may hold the same boxes, but boxes that differ do not overlap. A tensor that
  // the module has under several names needs one of them. Empty: nothing is in pieces. Not
  // collective.
  virtual ModelLayout layout() const { return {}; }
  // Has all parameters whole until the result is destroyed; see FullParameters. What is in pieces
  // is taken from options.from_rank when it ends; the caller sees to the rest. Collective. Null
  // where nothing is in pieces.
  virtual std::unique_ptr<FullParameters::Held> hold_full(
      const FullParametersOptions& /*options*/) {
    return nullptr;
  }
  // Throws UsageError at `where` if something is in pieces: for what needs whole tensors.
  void require_whole(const char* where) const;

 protected:
  // Before each forward pass. Collective where the strategy has something to exchange.
  virtual void before_forward() {}

 private:
  std::function<void()> on_forward_;
  std::function<void()> after_forward_;
  GradientSync gradient_sync_ = GradientSync::kOn;
};

// Elements of one of the user's parameters, by its number in OptimizerStrategy::parameters().
struct ParameterPiece {
  size_t parameter = 0;
  TensorBox box{};
};

// What the groups of an optimizer hold in place of the user's parameters, on this rank.
struct OptimizerLayout {
  // Of each of the user's parameters, whole, in their order: for parameters that are in pieces
  // themselves, as a ModelLayout has it. Empty: the shapes that they have.
  std::vector<std::vector<int64_t>> shapes{};
  // How many of the user's parameters each group is for, in their order.
  std::vector<size_t> group_sizes{};
  // Of each tensor in the groups, in their order: the pieces whose elements it holds, one after the
  // other, each in row-major order.
  std::vector<std::vector<ParameterPiece>> tensors{};
};

// One optimizer under a strategy, owned by the prepared optimizer, which keeps `optimizer` alive.
// This class itself changes nothing.
class ACCELERATE_EXPORT OptimizerStrategy {
 public:
  explicit OptimizerStrategy(torch::optim::Optimizer& optimizer) : optimizer_(optimizer) {}
  virtual ~OptimizerStrategy() = default;
  OptimizerStrategy(const OptimizerStrategy&) = delete;
  OptimizerStrategy& operator=(const OptimizerStrategy&) = delete;

  // The user's parameters, by which zero_grad(), clipping, windows of accumulation and checkpoints
  // find this optimizer: what its groups hold now, unless the strategy has put something else
  // there.
  virtual std::vector<at::Tensor> parameters() const;

  // Right before and right after each update, not while gradients only accumulate. Collective.
  // A closure runs backward passes of its own: before_step() is then left out. Under fp16 a step
  // may have left the parameters as they were, on all ranks alike, which a GPU tells later:
  // after_step() comes in any case. With a layout() the gradients of parameters() are divided by
  // the scale before before_step(), and all ranks leave the parameters as they were if one of them
  // has met an overflow.
  virtual void before_step() {}
  virtual void after_step() {}
  // What zero_grad() does with the gradients of parameters(); the default is what torch does.
  virtual void drop_gradients(bool set_to_none);
  // load_state() has given parameters() new values: what was made of them must be made anew. Not
  // collective.
  virtual void parameters_loaded() {}

  // For checkpoints, which keep the state of each piece with its place in the whole, so that a run
  // on another number of ranks, or with another strategy, finds what it needs. All ranks together
  // hold every element. Unset: the groups hold parameters() as they are, equal on all ranks. Not
  // collective.
  virtual std::optional<OptimizerLayout> layout() const { return std::nullopt; }

  // How updates are made, for strategies of the library; the default is the fastest way for the
  // type of the optimizer.
  virtual std::unique_ptr<OptimizerStep> make_step();

  torch::optim::Optimizer& optimizer() const { return optimizer_; }

 private:
  torch::optim::Optimizer& optimizer_;
};

// What Strategy::prepare_optimizer() is given.
struct OptimizerPreparation {
  // The user's. A strategy may replace what its groups hold, before its first update.
  torch::optim::Optimizer& optimizer;
  // The models prepared so far that have one of its parameters, in the order of their preparation.
  std::vector<std::shared_ptr<ModelStrategy>> models{};
};

// One call of Accelerator::backward().
struct BackwardCall {
  // Whether the loss has a weight: BackwardOptions::weight.
  bool is_weighted = false;
  // How many samples the loss stands for: BackwardOptions::samples, else the size of the batch that
  // the innermost loop over a prepared loader works on. Unset: nobody knows.
  std::optional<int64_t> samples{};
  // The parameters that alone get gradients, each once: BackwardOptions::only. Unset: all that the
  // loss reaches.
  std::optional<std::vector<at::Tensor>> inputs{};
  // The prepared models that may get gradients, in the order of their preparation.
  std::vector<std::shared_ptr<ModelStrategy>> models{};
};

class ACCELERATE_EXPORT Strategy {
 public:
  Strategy() = default;
  virtual ~Strategy() = default;
  Strategy(const Strategy&) = delete;
  Strategy& operator=(const Strategy&) = delete;

  // Of a word; see Accelerator::strategy_name().
  virtual std::string_view name() const = 0;

  // --- prepare(): first every model is placed and wrapped, then optimizers follow ---

  // Moves a model to `device`; the default moves all of it. Not called for unplaced() models, nor
  // without AcceleratorOptions::device_placement.
  virtual void place(torch::nn::Module& module, c10::Device device);
  // Whether place() and wrap() take models with parameters that have no memory, see EmptyWeights,
  // and give them their values. If not, all values are made before place(), whole on every rank.
  virtual bool fills_empty_weights() const { return false; }
  // Takes a model that was placed. Collective: all ranks, same order, same model. Throws UsageError
  // on all ranks alike if their models differ.
  virtual std::shared_ptr<ModelStrategy> wrap(std::shared_ptr<torch::nn::Module> module) = 0;
  // Takes an optimizer; never null. Collective.
  virtual std::unique_ptr<OptimizerStrategy> prepare_optimizer(
      const OptimizerPreparation& preparation);

  // --- a training step ---

  // Before anything of a backward pass has happened. Collective.
  virtual void before_backward(const BackwardCall& /*call*/) {}
  // What the calls of the same name on Accelerator do with gradients that are complete and
  // unscaled; see clip.h. `parameters` are the user's. The defaults are right where every rank
  // holds whole gradients that are equal on all ranks. Collective.
  virtual at::Tensor grad_norm(at::TensorList parameters, const ClipNormOptions& options);
  // NOLINTBEGIN(readability-identifier-naming): torch's names
  virtual at::Tensor clip_grad_norm_(at::TensorList parameters, double max_norm,
                                     const ClipNormOptions& options);
  virtual void clip_grad_value_(at::TensorList parameters, double clip_value);
  // NOLINTEND(readability-identifier-naming)
  // zero_grad() of a prepared model or optimizer is about to drop the gradients of `parameters`.
  virtual void before_zero_grad(const std::vector<at::Tensor>& /*parameters*/) {}
  // zero_grad() of a prepared model drops them; the default is what torch does. Optimizers ask
  // their OptimizerStrategy.
  virtual void drop_gradients(const std::vector<at::Tensor>& parameters, bool set_to_none);

  // --- around the training: `where` is what the user called, for messages ---

  // Throws UsageError if this rank must not go on training. Called before each batch of a prepared
  // loader, by the thread of that loop, and by save_state() on its way. Not collective.
  virtual void require_sound(const char* /*where*/) {}
  // A loop over a prepared loader has come to its end. By the thread of that loop; not collective.
  virtual void at_end_of_pass(const char* /*where*/) {}
  // Throws UsageError on all ranks alike if their state is not fit to be saved by save_state() or
  // save_model(). `with_gradients`: gradients are saved too, by save_state(), and must be whole
  // until after_save(). Collective.
  virtual void before_save(const char* /*where*/, bool /*with_gradients*/) {}
  // What save_state() called before_save() for is done or has failed. By the same thread. Must not
  // throw. Not collective.
  virtual void after_save() {}
  // Ranks below this one hold all that is in pieces; those from there on hold the same again, and
  // save_state() leaves them out. Unset: all ranks are needed. The same on all of them.
  virtual std::optional<int> ranks_of_one_copy() const { return std::nullopt; }
  // Whether forward passes take over the buffers of one rank. If not, save_state() keeps those of
  // every rank.
  virtual bool shares_buffers() const { return false; }

  // Runs `body`, in which ranks may have different numbers of batches; see
  // Accelerator::join_uneven_inputs, which calls it on several ranks only. `models` are to be
  // joined; `others` are prepared too, and the body must not train them. Collective. The default
  // throws UsageError.
  virtual void join_uneven_inputs(const std::function<void()>& body, const JoinOptions& options,
                                  const std::vector<std::shared_ptr<ModelStrategy>>& models,
                                  const std::vector<std::shared_ptr<ModelStrategy>>& others);
};

// Where a strategy works.
struct StrategyContext {
  std::shared_ptr<Communicator> ranks;  // all ranks of the job; may be one
  c10::Device device;                   // of this rank
};

// Makes a strategy when an Accelerator is constructed; it outlives the accelerator's options.
class ACCELERATE_EXPORT StrategyFactory {
 public:
  virtual ~StrategyFactory() = default;
  // Never null. Throws UsageError for options that contradict each other. Collective.
  virtual std::unique_ptr<Strategy> make(const StrategyContext& context) const = 0;
};

}  // namespace accelerate
