#include "strategy/ddp/ddp_model.h"

#include <ATen/Context.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <numeric>

#include "accelerate/detail/stamped.h"
#include "comm/groups/process_group.h"
#include "strategy/ddp/comm_hooks.h"
#include "strategy/ddp/tensor_broadcast.h"

namespace accelerate {
namespace {

std::vector<std::pair<std::string, at::Tensor>> frozen_parameters(const torch::nn::Module& module) {
  std::vector<std::pair<std::string, at::Tensor>> frozen;
  for (const auto& item : module.named_parameters()) {
    if (!item.value().requires_grad()) frozen.emplace_back(item.key(), item.value());
  }
  return frozen;
}

}  // namespace

DdpModel::DdpModel(std::shared_ptr<torch::nn::Module> module, TrainableParameters parameters,
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
  if (at::globalContext().deterministicAlgorithms()) fix_gradient_order();
  local_passes_ = std::make_unique<LocalPasses>(parameters_, reducer_);
  if (options.check_replicas) {
    reducer_->set_listener([this](size_t index) {
      // In a pass that bypassed the accelerator and is not meant to stay on this rank.
      if (!in_backward_ && averages()) local_passes_->note_gradient(index);
    });
  }
  if (options.comm_hook.hook != CommHook::kNo) {
    hook_ = register_comm_hook(*reducer_, group_, options.comm_hook);
  }
}

DdpModel::~DdpModel() = default;

// In which order gradients come follows from what the first pass computes, and how sums are rounded
// follows from the buckets. Where runs must be equal, both follow from the model.
void DdpModel::fix_gradient_order() {
  std::vector<int64_t> last_to_first(parameters_.tensors.size());
  std::iota(last_to_first.rbegin(), last_to_first.rend(), int64_t{0});
  reducer_->set_gradient_order(last_to_first);
  communicator_->guard("order of gradients", [&] { reducer_->rebuild_buckets(); });
}

// Running statistics change in training only, so one broadcast after the last training pass serves
// all evaluation that follows.
void DdpModel::before_forward() {
  require_usable("forward");
  require_no_local_pass("forward");
  reducer_->keep_accumulators();
  if (!options_.broadcast_buffers || buffers_.empty()) return;
  const bool training = module_->is_training() && at::GradMode::is_enabled();
  if (averages() && (training || buffers_changed_)) {
    communicator_->guard("broadcast of buffers in forward", [&] {
      broadcast(buffers_, join_ != nullptr ? join_->announce_buffers(join_index_) : 0);
    });
    buffers_changed_ = false;
  }
  buffers_changed_ = buffers_changed_ || training;
}

void DdpModel::before_backward(const at::Tensor& loss) {
  require_usable("backward");
  require_same_trainable_set();
  require_own_graph();
  const detail::ReductionPlan plan =
      join_ != nullptr ? join_->announce_backward(join_index_, loss) : plan_alone();
  in_backward_ = true;
  unreduced_before_ = reducer_->holds_unreduced_gradients();
  reducer_->set_holds_unreduced_gradients(false);
  first_static_pass_ = reducer_->awaits_first_pass();
  reduces_ = plan.reduction != detail::PassReduction::kNone;
  postponed_ = plan.reduction == detail::PassReduction::kDelayed;
  sync_next_ = false;
  if (!reduces_) return;
  const bool walk_graph = options_.find_unused_parameters && !options_.static_graph;
  reducer_->arm(walk_graph ? std::vector<at::Tensor>{loss} : std::vector<at::Tensor>{});
  if (join_ != nullptr) reducer_->set_share(plan.weight, plan.divisor);
  if (postponed_) reducer_->postpone();
}

void DdpModel::after_backward() {
  const bool unreduced = reducer_->holds_unreduced_gradients();
  if (postponed_) {
    reducer_->reduce_postponed();
    ++reduced_passes_;
    local_passes_->forget();
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
  if (!untouched) ++reduced_passes_;
  reducer_->disarm();
  reducer_->set_holds_unreduced_gradients(untouched && unreduced_before_);
  if (!local_passes_->any()) local_passes_->forget();
  in_backward_ = false;
}

void DdpModel::set_gradient_sync(GradientSync sync) {
  // Passes that bypassed the accelerator up to here were meant to stay on this rank.
  if (gradient_sync() == GradientSync::kLocal && usable()) local_passes_->accept();
  ModelStrategy::set_gradient_sync(sync);
}

bool DdpModel::holds_local_gradients() const {
  return reducer_ != nullptr && averages() && local_passes_->any();
}

void DdpModel::require_synchronised(const std::vector<at::Tensor>& parameters) const {
  if (!holds_local_gradients()) return;
  const auto is_local = [&](const at::Tensor& parameter) {
    return parameter.grad().defined() && identities_.contains(parameter.unsafeGetTensorImpl());
  };
  if (std::ranges::none_of(parameters, is_local)) return;
  refuse({.what = "the gradients are those of this rank alone: they did not go "
                  "through accelerator.backward(loss)",
          .where = "optimizer.step()",
          .hint = "call accelerator.backward(loss) instead of loss.backward()"});
}

void DdpModel::require_no_local_pass(const char* where) const {
  if (usable()) reducer_->keep_accumulators();  // also asked before each batch of a loader
  if (!options_.check_replicas || !usable() || !averages()) return;
  if (local_passes_->any_by_mistake()) refuse(LocalPasses::pass_error(where));
}

void DdpModel::before_zero_grad(const std::vector<at::Tensor>& parameters) {
  if (!usable()) return;
  if (const auto error = local_passes_->drop_gradients(parameters)) refuse(*error);
}

void DdpModel::release() {
  hook_ = nullptr;
  local_passes_.reset();
  logger_.reset();
  reducer_.reset();
}

void DdpModel::refuse(ErrorInfo info) const {
  detail::throw_usage_error(*communicator_, std::move(info));
}

void DdpModel::refuse_to_begin(const ErrorInfo& info) const {
  if (join_ != nullptr) join_->refuse_for_all(info);
  refuse(info);
}

void DdpModel::refuse_unused(const std::string& names) const {
  refuse({.what = "parameters took no part in the loss and so block the others: " + names,
          .where = "backward",
          .hint = options_.static_graph
                      ? "the graph changes from pass to pass: leave static_graph off"
                      : "set .ddp = {.find_unused_parameters = true}, or freeze them"});
}

void DdpModel::require_usable(const char* where) const {
  if (usable()) return;
  refuse({.what = reducer_ ? "an earlier backward pass of this model failed"
                           : "this model was released by free_memory()",
          .where = where,
          .hint = "prepare it again, on all ranks"});
}

void DdpModel::require_same_trainable_set() const {
  for (const auto& [name, parameter] : frozen_) {
    if (!parameter.requires_grad()) continue;
    refuse_to_begin({.what = "parameter '" + name +
                             "' was frozen when the model was prepared "
                             "and needs a gradient now",
                     .where = "backward",
                     .hint = "free_memory() and prepare the model again, on all ranks"});
  }
}

// Throws UsageError if the pass would leave gradients of this rank alone, or was preceded by a step
// with such ones.
void DdpModel::require_own_graph() const {
  if (const auto changed = local_passes_->changed_parameter()) {
    refuse_to_begin(local_passes_->step_error(*changed, "backward"));
  }
  if (const auto replaced = reducer_->replaced_accumulator()) {
    refuse_to_begin({.what = "parameter '" + parameters_.names[*replaced] +
                             "' was loaded again (torch::load, set_()), and the forward pass after "
                             "that bypassed the prepared model: its gradients would be those of "
                             "this rank alone",
                     .where = "backward",
                     .hint = "call the prepared model, or Accelerator::prepare() after loading"});
  }
  if (options_.static_graph && local_passes_->any()) {
    refuse_to_begin({.what = "a backward pass bypassed accelerator.backward(loss), which a "
                             "static graph cannot repair",
                     .where = "backward",
                     .hint = "call accelerator.backward(loss) instead of loss.backward()"});
  }
}

detail::ReductionPlan DdpModel::plan_alone() const {
  return {.reduction =
              would_reduce() ? detail::PassReduction::kOverlapped : detail::PassReduction::kNone};
}

void DdpModel::broadcast(const std::vector<at::Tensor>& tensors, int source) const {
  broadcast_tensors(group_, tensors, source);
}

}  // namespace accelerate
