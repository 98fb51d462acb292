#include "strategy/ddp_model.h"

#include <ATen/ops/stack.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <unordered_set>
#include <utility>
#include <vector>

#include "accelerate/detail/stamped.h"
#include "accelerate/errors.h"
#include "comm/process_group.h"
#include "compat/reducer.h"
#include "strategy/comm_hooks.h"
#include "strategy/power_sgd.h"
#include "strategy/reduction_memory.h"
#include "strategy/replica_check.h"
#include "strategy/replica_digest.h"
#include "strategy/uneven_join.h"

namespace accelerate {
namespace {

// As much as is copied into one message when parameters or buffers are broadcast.
constexpr size_t kBroadcastBytes = 250UL * 1024 * 1024;

constexpr const char* kLocalPassHint =
    "call accelerator.backward(loss) instead of loss.backward() and step the prepared optimizer; "
    "for a pass that is meant to stay on this rank, hold accelerator.no_sync(model)";

std::vector<at::Tensor> detached(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> result;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.defined() && tensor.numel() > 0) result.push_back(tensor.detach());
  }
  return result;
}

class DdpModel final : public ModelStrategy, public detail::JoinMember, public ReductionMemory {
 public:
  DdpModel(std::shared_ptr<torch::nn::Module> module, TrainableParameters parameters,
           std::shared_ptr<Communicator> communicator, const DdpOptions& options)
      : module_(std::move(module)),
        communicator_(std::move(communicator)),
        options_(options),
        group_(comm::process_group_of(*communicator_)),
        parameters_(std::move(parameters)),
        frozen_(frozen_parameters(*module_)),
        buffers_(module_->buffers()) {
    for (const at::Tensor& tensor : parameters_.tensors) {
      identities_.insert(tensor.unsafeGetTensorImpl());
    }
    communicator_->guard("broadcast of parameters", [&] { broadcast(module_->parameters(), 0); });
    communicator_->guard("broadcast of buffers", [&] { broadcast(buffers_, 0); });
    auto made = compat::make_reducer(
        parameters_.tensors, parameters_.names, parameters_.sparse, group_,
        {.bucket_bytes_cap = static_cast<size_t>(options.bucket_cap_mb * 1024 * 1024),
         .find_unused_parameters = options.find_unused_parameters,
         .gradient_as_bucket_view = options.gradient_as_bucket_view,
         .static_graph = options.static_graph});
    reducer_ = std::move(made.reducer);
    logger_ = std::move(made.logger);
    if (options.check_replicas) {
      reducer_->set_listener([this](size_t index) { note_gradient(index); });
    }
    if (options.comm_hook.hook != CommHook::kNo) {
      hook_ = register_comm_hook(*reducer_, group_, options.comm_hook);
    }
  }

  // Running statistics change in training only, so one broadcast after the last training pass
  // serves all evaluation that follows.
  void begin_forward() override {
    require_usable("forward");
    require_no_local_pass("forward");
    reducer_->keep_accumulators();
    run_before_next_forward();
    if (!options_.broadcast_buffers || buffers_.empty()) return;
    const bool training = module_->is_training() && at::GradMode::is_enabled();
    if (gradient_sync_ && (training || buffers_changed_)) {
      communicator_->guard("broadcast of buffers in forward", [&] {
        broadcast(buffers_, join_ != nullptr ? join_->announce_buffers(join_index_) : 0);
      });
      buffers_changed_ = false;
    }
    buffers_changed_ = buffers_changed_ || training;
  }

  void before_backward(const at::Tensor& loss) override {
    require_usable("backward");
    require_same_trainable_set();
    if (const auto changed = changed_by_local_pass()) {
      refuse_to_begin(local_step(*changed, "backward"));
    }
    if (const auto replaced = reducer_->replaced_accumulator()) {
      refuse_to_begin(
          {.what = "parameter '" + parameters_.names[*replaced] +
                   "' was loaded again (torch::load, set_()), and the forward pass after "
                   "that bypassed the prepared model: its gradients would be those of "
                   "this rank alone",
           .where = "backward",
           .hint = "call the prepared model, or Accelerator::prepare() after loading"});
    }
    if (options_.static_graph && reducer_->holds_unreduced_gradients()) {
      refuse_to_begin({.what = "a backward pass bypassed accelerator.backward(loss), which a "
                               "static graph cannot repair",
                       .where = "backward",
                       .hint = "call accelerator.backward(loss) instead of loss.backward()"});
    }
    const detail::ReductionPlan plan =
        join_ != nullptr ? join_->announce_backward(join_index_, loss) : plan_alone();
    in_backward_ = true;
    unreduced_before_ = reducer_->holds_unreduced_gradients();
    reducer_->set_holds_unreduced_gradients(false);
    first_static_pass_ = reducer_->awaits_first_pass();
    reduces_ = plan.reduction != detail::Reduction::kNone;
    postponed_ = plan.reduction == detail::Reduction::kDelayed;
    sync_next_ = false;
    if (!reduces_) return;
    const bool walk_graph = options_.find_unused_parameters && !options_.static_graph;
    reducer_->arm(walk_graph ? std::vector<at::Tensor>{loss} : std::vector<at::Tensor>{});
    if (join_ != nullptr) reducer_->set_share(plan.weight, plan.divisor);
    if (postponed_) reducer_->postpone();
  }

  void after_backward() override {
    const bool unreduced = reducer_->holds_unreduced_gradients();
    if (reduces_) ++reduced_passes_;
    if (postponed_) {
      reducer_->reduce_postponed();
      forget_local_passes();
      in_backward_ = false;
      return;
    }
    if (join_ != nullptr && !reduces_ && would_reduce() && unreduced) {
      refuse({.what = "gradients came from a part of the graph that cannot be seen before the pass",
              .where = "backward",
              .hint = "inside join_uneven_inputs, do not hide a whole model in a nested backward"});
    }
    if (reduces_ && (reducer_->is_incomplete() || (unreduced && !first_static_pass_))) {
      const std::string names =
          names_where([&](size_t i) { return !parameters_.tensors[i].grad().defined(); });
      refuse_unused(names.empty() ? "some that hold a gradient of an earlier pass" : names);
    }
    if (reduces_ && unreduced) reducer_->reduce_counted();  // by the first pass of a static graph
    // What came before this pass was reduced with it, unless the loss did not reach this model.
    const bool untouched = !reduces_ || reducer_->is_armed();
    reducer_->disarm();
    reducer_->set_holds_unreduced_gradients(untouched && unreduced_before_);
    if (!reducer_->holds_unreduced_gradients()) forget_local_passes();
    in_backward_ = false;
  }

  void set_gradient_sync(bool on) override { gradient_sync_ = on; }
  bool gradient_sync() const override { return gradient_sync_; }
  void sync_next_backward() override { sync_next_ = true; }

  void set_batch_weight(int64_t samples) override {
    if (samples < 0) {
      refuse({.what = "a batch of " + std::to_string(samples) + " samples",
              .where = "set_batch_weight",
              .hint = "pass the number of samples behind the next backward pass"});
    }
    batch_weight_ = samples;
  }
  detail::JoinMember* join_member() override { return this; }

  void set_join(detail::UnevenJoin* join, size_t index) override {
    join_ = join;
    join_index_ = index;
  }
  detail::UnevenJoin* join() const override { return join_; }
  // Averaging one pass more changes no sum; a static graph must see its first pass whole.
  bool would_reduce() const override {
    return reducer_ != nullptr && (gradient_sync_ || sync_next_ || reducer_->awaits_first_pass());
  }
  bool must_delay() const override { return reducer_->awaits_first_pass(); }
  bool is_reached_by(const compat::GraphNodes& graph) const override {
    if (!reducer_) return false;
    for (size_t i = 0; i < parameters_.tensors.size(); ++i) {
      if (reducer_->is_reached(i, graph)) return true;
    }
    return false;
  }
  void require_all_reached_by(const compat::GraphNodes& graph) const override {
    if (options_.find_unused_parameters || options_.static_graph) return;
    const std::string names =
        names_where([&](size_t i) { return !reducer_->is_reached(i, graph); });
    if (!names.empty()) refuse_unused(names);
  }
  int64_t batch_weight() const override { return batch_weight_; }

  void answer_buffers(int source) override { broadcast(buffers_, source); }
  void answer_before_backward() override {
    require_usable("join_uneven_inputs");
    reducer_->answer_arm();
  }
  void answer_reduction(bool delayed) override {
    ++reduced_passes_;  // as on the ranks that ran the pass
    reducer_->answer_reduction(delayed);
  }
  void require_same_replica(size_t index, bool compares) const override {
    accelerate::require_same_replica(
        *communicator_, *module_, index,
        compares && options_.check_replicas && gradient_sync_ && module_->is_training(),
        "the end of join_uneven_inputs");
  }
  void copy_from(int source) override {
    broadcast(parameters_.tensors, source);
    broadcast(buffers_, source);
    buffers_changed_ = false;
    if (!options_.static_graph || !usable() || reducer_->awaits_first_pass()) return;
    const at::Tensor counts =
        at::tensor(reducer_->static_graph_counts(), at::kLong).to(parameters_.tensors[0].device());
    broadcast({counts}, source);
    const at::Tensor received = counts.cpu();
    reducer_->set_static_graph_counts(
        {received.data_ptr<int64_t>(), received.data_ptr<int64_t>() + received.numel()});
  }

  void require_synchronised(const at::Tensor& parameter) const override {
    if (!reducer_ || !gradient_sync_ || !reducer_->holds_unreduced_gradients()) return;
    if (!parameter.grad().defined() || identities_.count(parameter.unsafeGetTensorImpl()) == 0) {
      return;
    }
    refuse({.what = "the gradients are those of this rank alone: they did not go "
                    "through accelerator.backward(loss)",
            .where = "optimizer.step()",
            .hint = "call accelerator.backward(loss) instead of loss.backward()"});
  }

  void require_no_local_pass(const char* where) const override {
    if (usable()) reducer_->keep_accumulators();  // also asked before each batch of a loader
    if (!options_.check_replicas || !usable() || !gradient_sync_ || local_passes_are_meant_) return;
    if (!reducer_->holds_unreduced_gradients()) return;
    refuse({.what = "a backward pass bypassed accelerator.backward(loss): its gradients are those "
                    "of this rank alone, and updating with them would make the ranks diverge",
            .where = where,
            .hint = kLocalPassHint});
  }
  void accept_local_passes() override {
    if (!usable() || !reducer_->holds_unreduced_gradients()) return;
    forget_local_passes();
    reducer_->set_holds_unreduced_gradients(true);
    local_passes_are_meant_ = true;
  }
  void drop_gradients(const std::vector<at::Tensor>& parameters) override {
    if (!usable() || !reducer_->holds_unreduced_gradients()) return;
    std::unordered_set<const void*> dropped;
    for (const at::Tensor& parameter : parameters) {
      if (identities_.count(parameter.unsafeGetTensorImpl()) != 0) {
        dropped.insert(parameter.unsafeGetTensorImpl());
      }
    }
    if (dropped.empty()) return;
    const auto changed = changed_by_local_pass();
    // Another optimizer may still hold gradients of this rank alone.
    const bool none_is_left = std::ranges::all_of(parameters_.tensors, [&](const auto& own) {
      return !own.grad().defined() || dropped.count(own.unsafeGetTensorImpl()) != 0;
    });
    if (changed || none_is_left) forget_local_passes();
    if (changed) refuse(local_step(*changed, "zero_grad()"));
  }
  // Between two averages of LocalSGD, and in a join, the ranks are not at the same update.
  bool is_replicated() const override {
    return options_.check_replicas && usable() && gradient_sync_ && join_ == nullptr;
  }
  int64_t reduced_passes() const override { return reduced_passes_; }

  std::vector<int64_t> gradient_order() const override {
    return reducer_ ? reducer_->gradient_order() : std::vector<int64_t>{};
  }
  void set_gradient_order(const std::vector<int64_t>& order) override {
    if (reducer_) reducer_->set_gradient_order(order);
  }

  bool buckets_follow_order() const override {
    return reducer_ != nullptr && reducer_->follows_gradient_order();
  }
  void let_buckets_follow_order() override {
    if (!reducer_) return;
    communicator_->guard("order of gradients", [&] { reducer_->rebuild_buckets(); });
  }
  StateDict hook_state() const override { return hook_ != nullptr ? hook_->state() : StateDict{}; }
  std::string check_hook_state(const StateDict& state) const override {
    return hook_ != nullptr ? hook_->check(state) : std::string();
  }
  void load_hook_state(const StateDict& state) override {
    if (hook_ != nullptr) hook_->load(state, parameters_.tensors[0].device());
  }

  void release() override {
    hook_ = nullptr;
    logger_.reset();
    reducer_.reset();
  }
  bool usable() const override { return reducer_ != nullptr && !in_backward_; }

 private:
  [[noreturn]] void refuse(ErrorInfo info) const {
    detail::throw_usage_error(*communicator_, std::move(info));
  }
  // Before anything of a pass was exchanged: ranks that wait for it in a join are told.
  [[noreturn]] void refuse_to_begin(const ErrorInfo& info) const {
    if (join_ != nullptr) join_->refuse_for_all(info);
    refuse(info);
  }

  static std::vector<std::pair<std::string, at::Tensor>> frozen_parameters(
      const torch::nn::Module& module) {
    std::vector<std::pair<std::string, at::Tensor>> frozen;
    for (const auto& item : module.named_parameters()) {
      if (!item.value().requires_grad()) frozen.emplace_back(item.key(), item.value());
    }
    return frozen;
  }

  void require_usable(const char* where) const {
    if (usable()) return;
    refuse({.what = reducer_ ? "an earlier backward pass of this model failed"
                             : "this model was released by free_memory()",
            .where = where,
            .hint = "prepare it again, on all ranks"});
  }

  // A parameter has got a gradient. In a pass that went past the accelerator and is not meant to
  // stay on this rank: notes what the parameter is, so that a step by that gradient is seen even if
  // the gradient is gone by then. libtorch's optimizers leave no other trace on a parameter.
  void note_gradient(size_t index) {
    if (in_backward_ || !gradient_sync_) return;
    const std::lock_guard lock(noted_mutex_);
    if (noted_.count(index) == 0) noted_[index] = sum_of_bits(parameters_.tensors[index]);
  }
  // The first parameter that has changed since. Waits for the device where there is one to look at.
  std::optional<size_t> changed_by_local_pass() const {
    const std::lock_guard lock(noted_mutex_);
    std::vector<size_t> indices;
    std::vector<at::Tensor> before, now;
    for (const auto& [index, bits] : noted_) {
      if (!bits.defined()) continue;
      const at::Device device = indices.empty() ? bits.device() : before[0].device();
      indices.push_back(index);
      before.push_back(bits.to(device));
      now.push_back(sum_of_bits(parameters_.tensors[index]).to(device));
    }
    if (indices.empty()) return std::nullopt;
    const at::Tensor changed = at::stack(before).ne(at::stack(now)).nonzero().cpu();
    if (changed.numel() == 0) return std::nullopt;
    return indices[static_cast<size_t>(changed[0][0].item<int64_t>())];
  }
  void forget_local_passes() {
    reducer_->set_holds_unreduced_gradients(false);
    local_passes_are_meant_ = false;
    const std::lock_guard lock(noted_mutex_);
    noted_.clear();
  }
  ErrorInfo local_step(size_t index, const char* where) const {
    return {.what = "parameter '" + parameters_.names[index] +
                    "' was changed while it held a gradient of this rank alone, which did not go "
                    "through accelerator.backward(loss): the ranks train apart",
            .where = where,
            .hint = kLocalPassHint};
  }

  void require_same_trainable_set() const {
    for (const auto& [name, parameter] : frozen_) {
      if (!parameter.requires_grad()) continue;
      refuse_to_begin({.what = "parameter '" + name +
                               "' was frozen when the model was prepared "
                               "and needs a gradient now",
                       .where = "backward",
                       .hint = "free_memory() and prepare the model again, on all ranks"});
    }
  }

  [[noreturn]] void refuse_unused(const std::string& names) const {
    refuse({.what = "parameters took no part in the loss and so block the others: " + names,
            .where = "backward",
            .hint = options_.static_graph
                        ? "the graph changes from pass to pass: leave static_graph off"
                        : "set .ddp = {.find_unused_parameters = true}, or freeze them"});
  }

  detail::ReductionPlan plan_alone() const {
    return {.reduction =
                would_reduce() ? detail::Reduction::kOverlapped : detail::Reduction::kNone};
  }

  void broadcast(const std::vector<at::Tensor>& tensors, int source) {
    const std::vector<at::Tensor> targets = detached(tensors);
    if (targets.empty()) return;
    at::NoGradGuard no_grad;
    c10d::broadcast_coalesced(group_, targets, kBroadcastBytes, source);
  }

  // The first few of those that `condition` holds for.
  template <class Condition>
  std::string names_where(Condition condition) const {
    constexpr size_t kMostNames = 8;
    std::string text;
    size_t count = 0;
    for (size_t i = 0; i < parameters_.tensors.size(); ++i) {
      if (!condition(i)) continue;
      if (++count <= kMostNames) text += (count > 1 ? ", " : "") + parameters_.names[i];
    }
    if (count > kMostNames) text += " and " + std::to_string(count - kMostNames) + " more";
    return text;
  }

  std::shared_ptr<torch::nn::Module> module_;
  std::shared_ptr<Communicator> communicator_;
  DdpOptions options_;
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  TrainableParameters parameters_;
  std::unordered_set<const void*> identities_;  // of these parameters
  std::vector<std::pair<std::string, at::Tensor>> frozen_;
  std::vector<at::Tensor> buffers_;
  std::shared_ptr<compat::GradientReducer> reducer_;  // null once released
  std::shared_ptr<c10d::Logger> logger_;
  PowerSgdHook* hook_ = nullptr;  // of the reducer, if it keeps something from pass to pass
  bool gradient_sync_ = true;
  bool sync_next_ = false;
  bool buffers_changed_ = false;
  bool in_backward_ = false;             // stays where a pass threw
  bool local_passes_are_meant_ = false;  // those behind gradients that were not reduced
  mutable std::mutex noted_mutex_;
  std::map<size_t, at::Tensor> noted_;  // by parameter: its bits when it got such a gradient
  int64_t reduced_passes_ = 0;          // of all ranks together, answered ones too
  int64_t batch_weight_ = 1;
  detail::UnevenJoin* join_ = nullptr;  // while one runs
  size_t join_index_ = 0;
  // Of the pass that runs:
  bool reduces_ = false;
  bool postponed_ = false;
  bool first_static_pass_ = false;
  bool unreduced_before_ = false;  // gradients that bypassed the accelerator before it
};

}  // namespace

std::shared_ptr<ModelStrategy> make_ddp_model(std::shared_ptr<torch::nn::Module> module,
                                              TrainableParameters parameters,
                                              std::shared_ptr<Communicator> communicator,
                                              const DdpOptions& options) {
  return std::make_shared<DdpModel>(std::move(module), std::move(parameters),
                                    std::move(communicator), options);
}

}  // namespace accelerate
