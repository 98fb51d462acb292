// Backward passes, windows of accumulation, clipping and joins.
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "accelerate/accelerator.h"
#include "accelerate/detail/nondeterminism.h"
#include "comm/groups/activity.h"
#include "core/accelerator_impl.h"
#include "core/optimizer_replicas.h"
#include "core/process/step_aggregator.h"
#include "device/replay_actions.h"
#include "strategy/ddp/replica_bits.h"
#include "tensor/gradient_values.h"

namespace accelerate {
namespace {

void require_gradients(at::TensorList parameters, const char* where) {
  const auto has_gradient = [](const at::Tensor& parameter) { return parameter.grad().defined(); };
  if (std::ranges::any_of(parameters, has_gradient)) return;
  throw UsageError({.what = "none of the parameters has a gradient",
                    .where = where,
                    .hint = "call it after Accelerator::backward() and before zero_grad()"});
}

// The parameters that a loss is to leave gradients in, each once; nothing if that is all.
std::optional<std::vector<at::Tensor>> inputs_of(const LossTargets& targets) {
  if (!targets.parameters()) return std::nullopt;
  std::vector<at::Tensor> inputs;
  std::set<const void*> seen;
  for (const at::Tensor& parameter : *targets.parameters()) {
    if (!parameter.requires_grad() || !seen.insert(parameter.unsafeGetTensorImpl()).second)
      continue;
    inputs.push_back(parameter);
  }
  if (!inputs.empty()) return inputs;
  throw UsageError({.what = "none of the parameters of these models needs a gradient",
                    .where = "BackwardOptions::only",
                    .hint = "name the models that the loss should train, or none"});
}

// The models that a pass into `inputs` leaves gradients in.
std::vector<std::shared_ptr<ModelStrategy>> reached_by(
    const PreparedModels& models, const std::optional<std::vector<at::Tensor>>& inputs) {
  std::set<const void*> wanted;
  if (inputs) {
    for (const at::Tensor& input : *inputs) wanted.insert(input.unsafeGetTensorImpl());
  }
  std::vector<std::shared_ptr<ModelStrategy>> reached;
  for (const auto& [module, strategy] : models) {
    const auto is_wanted = [&](const at::Tensor& parameter) {
      return wanted.contains(parameter.unsafeGetTensorImpl());
    };
    if (!inputs || std::ranges::any_of(module->parameters(), is_wanted)) {
      reached.push_back(strategy);
    }
  }
  return reached;
}

void require_samples(std::optional<int64_t> samples) {
  if (samples.value_or(0) >= 0) return;
  throw UsageError({.what = "a batch of " + std::to_string(*samples) + " samples",
                    .where = "BackwardOptions::samples",
                    .hint = "pass the number of samples that the loss stands for"});
}

}  // namespace

std::vector<std::vector<at::Tensor>> Accelerator::Impl::parameters_of_each() const {
  std::vector<std::vector<at::Tensor>> all;
  for (const auto& entry : models) all.push_back(entry.module->parameters());
  for (const PreparedOptimizer& prepared : optimizers->live()) {
    all.push_back(prepared.parameters());
  }
  return all;
}

std::vector<at::Tensor> Accelerator::Impl::gradients() const {
  std::vector<at::Tensor> parameters;
  for (const auto& each : parameters_of_each()) {
    std::ranges::copy(each, std::back_inserter(parameters));
  }
  return distinct_gradients(parameters);
}

std::vector<at::Tensor> Accelerator::trained_parameters() const {
  return impl_->trained_parameters();
}

std::vector<at::Tensor> Accelerator::Impl::trained_parameters() const {
  std::vector<at::Tensor> all;
  std::set<const void*> seen;
  for (const auto& each : parameters_of_each()) {
    for (const at::Tensor& parameter : each) {
      if (seen.insert(parameter.unsafeGetTensorImpl()).second) all.push_back(parameter);
    }
  }
  return all;
}

GradientMarks Accelerator::Impl::unscaled_gradients() const {
  GradientMarks marks;
  for (const PreparedOptimizer& prepared : optimizers->live()) {
    if (updates->holds_unscaled(prepared.optimizer())) marks.add(prepared.parameters());
  }
  return marks;
}

// Other strategies may give the graph other tensors than those that the user knows.
bool Accelerator::Impl::compares_plain_ddp() const {
  if (state.world_size() == 1 || strategy->name() != "ddp" || options.flat) return false;
  return ddp_options().check_replicas;
}

const DdpOptions& Accelerator::Impl::ddp_options() const {
  if (const auto* ddp = std::get_if<DdpOptions>(&options.strategy)) return *ddp;
  if (const auto* fsdp = std::get_if<FsdpOptions>(&options.strategy)) return fsdp->ddp;
  return options.ddp;
}

void Accelerator::Impl::compare_updated_replicas() {
  const int64_t every = ddp_options().check_replicas_every;
  if (every == 0 || trained_apart || optimizers->live().empty() || !compares_plain_ddp()) return;
  const bool is_apart = std::ranges::any_of(models, [](const auto& entry) {
    return entry.strategy->gradient_sync() == GradientSync::kLocal;
  });
  const auto count_updates = [&] { return optimizers->live().front().step_count(); };
  if (is_apart || local_since) {
    // Updates in LocalSgd leave each rank optimizer state of its own.
    const int64_t updates = count_updates();
    trained_apart = updates > local_since.value_or(updates);
    local_since = is_apart ? std::optional(local_since.value_or(updates)) : std::nullopt;
  }
  if (is_apart || trained_apart) return;
  if (++passes_since_compared < every) return;  // the number of updates may wait for the device
  const int64_t updates = count_updates();
  if (updates < compared_at) compared_at = updates;  // an earlier state was loaded
  const int64_t made = updates - compared_at;
  passes_since_compared = made < every ? made : 0;
  if (made < every) return;
  compared_at = updates;
  require_equal_bits(
      *communicator, [this] { return replicated_values(models, optimizers->live()); }, made,
      "backward");
}

void Accelerator::Impl::look_for_strays(const at::Tensor& loss) {
  if (!compares_plain_ddp()) return;
  optimizers->drop_expired();
  if (models.empty() && optimizers->live().empty()) {
    throw UsageError({.what = "no model was prepared, so there are no gradients to average over "
                              "the ranks: each would train a model of its own",
                      .where = "backward",
                      .hint = "give the model and its optimizer to prepare(), and call what it "
                              "returns; for a pass that is meant to stay on this rank, call "
                              "loss.backward(); {.ddp = {.check_replicas = false}} switches this "
                              "check off"});
  }
  if (!state.is_main_process() || strays.is_done()) return;
  if (device::ReplayActions::current() != nullptr) return;
  strays.look(loss, trained_parameters());
}

void Accelerator::Impl::note_unfinished_gradients() {
  std::vector<const torch::optim::Optimizer*> waiting;
  if (updates || !window->sync_gradients()) {
    for (const PreparedOptimizer& prepared : optimizers->live()) {
      if (updates && updates->holds_unscaled(prepared.optimizer())) continue;
      waiting.push_back(&prepared.optimizer());
    }
  }
  const auto stage = updates ? GradientStage::kScaled : GradientStage::kAccumulating;
  checks->own_steps().note(waiting, stage);
  const bool must_wait = updates || !window->sync_gradients();
  checks->ownerless_steps().note(
      must_wait ? ownerless.parameters(models, *optimizers) : std::vector<at::Tensor>(), stage);
  if (must_wait) ownerless.warn_once(updates != nullptr);
}

detail::ZeroGrad Accelerator::Impl::zero_grad_of_models() const {
  return [window = window, updates = updates, unfit = unfit, optimizers = optimizers,
          strategy = strategy, checks = checks,
          state = state](const std::vector<at::Tensor>& parameters, bool set_to_none) {
    const bool keeps = window->keeps(parameters);
    detail::stamped(state, [&] {
      keeps ? checks->before_call("zero_grad") : checks->before_gradient_call("zero_grad");
    });
    if (keeps) return;
    window->drop(parameters);
    checks->own_steps().forget(parameters);
    checks->ownerless_steps().forget(parameters);
    if (updates) {
      unfit->forget(parameters);
      for (const PreparedOptimizer& prepared : optimizers->live()) {
        updates->discard_if_within(prepared.optimizer(), prepared.parameters(), parameters);
      }
    }
    detail::stamped(state, [&] { strategy->before_zero_grad(parameters); });
    strategy->drop_gradients(parameters, set_to_none);
  };
}

void Accelerator::finish_iteration() const {
  if (impl_->updates) impl_->updates->finish_iteration();
}

void Accelerator::abandon_iteration() const {
  if (impl_->updates) impl_->updates->abandon();
}

Accumulation Accelerator::begin_micro_batch(std::vector<std::shared_ptr<ModelStrategy>> models) {
  return impl_->stamped([&] {
    for (const auto& model : models) {
      if (impl_->prepared(model)) continue;
      throw UsageError({.what = "a model that this accelerator did not prepare",
                        .where = "accumulate",
                        .hint = "name the models that prepare() returned, or none"});
    }
    impl_->settle_configuration();
    impl_->checks->before_call("accumulate");
    impl_->streams->separate();
    const auto batch = impl_->passes->current();
    std::vector<const void*> named;
    for (const auto& model : models) named.push_back(model.get());
    impl_->window->begin_micro_batch(batch && batch->is_last, named);
    const bool averages =
        impl_->window->sync_gradients() || impl_->options.gradient_accumulation.sync_each_batch;
    std::vector<std::pair<std::shared_ptr<ModelStrategy>, GradientSync>> before;
    for (const auto& entry : impl_->models) {
      if (!models.empty() && std::ranges::find(models, entry.strategy) == models.end()) continue;
      const GradientSync sync = entry.strategy->gradient_sync();
      before.emplace_back(entry.strategy, sync);
      // Where no_sync or LocalSgd keeps gradients on their rank, they stay there.
      if (sync == GradientSync::kOn && !averages) {
        entry.strategy->set_gradient_sync(GradientSync::kPaused);
      }
    }
    return Accumulation([window = impl_->window, before = std::move(before)] {
      window->end_micro_batch();
      for (const auto& [strategy, sync] : before) strategy->set_gradient_sync(sync);
    });
  });
}

bool Accelerator::sync_gradients() const { return impl_->window->sync_gradients(); }
int64_t Accelerator::gradient_accumulation_steps() const { return impl_->window->steps(); }

void Accelerator::backward(const at::Tensor& loss, const BackwardOptions& options) {
  impl_->stamped([&] {
    impl_->settle_configuration();
    impl_->checks->before_backward("backward");
    require_samples(options.samples);
    if (!options.only.parameters()) impl_->look_for_strays(loss);
    BackwardCall call{.is_weighted = options.weight.has_value(),
                      .samples = options.samples,
                      .inputs = inputs_of(options.only)};
    call.models = reached_by(impl_->models, call.inputs);
    if (!call.samples) {
      if (const auto batch = impl_->passes->current()) call.samples = batch->size;
    }
    const EventSpan span(comm::events_of(*impl_->communicator), EventKind::kSpanBegin,
                         kBackwardSpan, call.samples.value_or(0));
    impl_->compare_updated_replicas();
    impl_->strategy->before_backward(call);
    impl_->window->restore_gradients();
    at::Tensor counted = impl_->window->counted(loss, options.weight);
    GradientMarks unscaled;
    if (impl_->updates) {
      impl_->optimizers->drop_expired();
      impl_->unfit->forget_dropped();
      counted = impl_->updates->scale(counted);
      unscaled = impl_->unscaled_gradients();
    }
    impl_->window->before_pass();
    impl_->communicator->guard("backward", [&] {
      const UnfitGradients::Pass pass(impl_->unfit.get());
      for (const auto& model : call.models) model->before_backward(counted);
      try {
        if (call.inputs) {
          counted.backward({}, options.retain_graph, /*create_graph=*/false, *call.inputs);
        } else {
          counted.backward({}, options.retain_graph);
        }
      } catch (const c10::Error& error) {
        detail::refuse_nondeterminism(error, "backward");
        throw;
      }
      for (const auto& model : call.models) model->after_backward();
    });
    if (impl_->epochs && std::ranges::any_of(call.models, [](const auto& model) {
          return model->gradient_sync() == GradientSync::kOn;
        })) {
      impl_->epochs->count_pass();
    }
    impl_->window->after_pass();
    impl_->note_unfinished_gradients();
    if (const std::vector<at::Tensor> mixed = unscaled.changed(); !mixed.empty()) {
      impl_->unfit->add_mixed(mixed);
      throw UsageError({.what = "a loss was added to gradients that were already unscaled",
                        .where = "backward",
                        .hint = "call step() or zero_grad() after clip_grad_norm_ or "
                                "unscale_gradients, before the next backward(); these gradients "
                                "must be dropped by zero_grad()"});
    }
  });
}

at::Tensor Accelerator::grad_norm(at::TensorList parameters, const ClipNormOptions& options) {
  return impl_->stamped([&] {
    require_gradients(parameters, "grad_norm");
    impl_->unscale_gradients_of(parameters, "grad_norm");
    return impl_->strategy->grad_norm(parameters, options);
  });
}

at::Tensor Accelerator::clip_grad_norm_(at::TensorList parameters, double max_norm,
                                        const ClipNormOptions& options) {
  return impl_->stamped([&] {
    require_gradients(parameters, "clip_grad_norm_");
    if (impl_->clipping) impl_->clipping->check(max_norm, options);
    impl_->unscale_gradients_of(parameters, "clip_grad_norm_");
    at::Tensor norm = impl_->strategy->clip_grad_norm_(parameters, max_norm, options);
    if (impl_->clipping) impl_->clipping->note(parameters);
    return norm;
  });
}

void Accelerator::clip_grad_value_(at::TensorList parameters, double clip_value) {
  impl_->stamped([&] {
    require_gradients(parameters, "clip_grad_value_");
    impl_->unscale_gradients_of(parameters, "clip_grad_value_");
    impl_->strategy->clip_grad_value_(parameters, clip_value);
  });
}

void Accelerator::unscale_gradients() {
  if (!impl_->updates) return;
  impl_->stamped([&] {
    impl_->require_complete_gradients("unscale_gradients");
    impl_->checks->before_gradient_call("unscale_gradients");
    for (const PreparedOptimizer& prepared : impl_->optimizers->live()) {
      impl_->unscale(prepared, "unscale_gradients");
    }
  });
}

void Accelerator::unscale_gradients(const PreparedOptimizer& optimizer) {
  impl_->stamped([&] {
    if (impl_->optimizers->find(optimizer.optimizer()) == nullptr) {
      throw UsageError({.what = "an optimizer that this accelerator did not prepare",
                        .where = "unscale_gradients",
                        .hint = "pass what prepare() returned"});
    }
    if (!impl_->updates) return;
    impl_->require_complete_gradients("unscale_gradients");
    impl_->checks->before_gradient_call("unscale_gradients");
    impl_->unscale(optimizer, "unscale_gradients");
  });
}

bool Accelerator::optimizer_step_was_skipped() const {
  return std::ranges::any_of(impl_->optimizers->live(), &PreparedOptimizer::step_was_skipped);
}

GradScaler* Accelerator::scaler() const {
  return impl_->updates ? &impl_->updates->scaler() : nullptr;
}

void Accelerator::join_models(const std::function<void()>& body, const JoinOptions& options,
                              const std::vector<std::shared_ptr<ModelStrategy>>& named) {
  if (impl_->epochs) impl_->epochs->stop();
  impl_->trained_apart = true;  // a rank that has run out keeps older optimizer state
  std::vector<std::shared_ptr<ModelStrategy>> joined;
  std::vector<std::shared_ptr<ModelStrategy>> others;
  for (const auto& entry : impl_->models) {  // in the order in which backward asks them
    const bool is_named = std::ranges::find(named, entry.strategy) != named.end();
    (named.empty() || is_named ? joined : others).push_back(entry.strategy);
  }
  // Ends with the body, however that ends.
  struct EvenBatches {
    EvenBatches(Impl& impl, std::optional<bool> even) : impl(impl), even(even) {
      if (even) set(even);
    }
    ~EvenBatches() {
      if (even) set(std::nullopt);
    }
    void set(std::optional<bool> value) const {
      for (const auto& loader : impl.loaders) {
        if (const auto control = loader->control()) control->set_even_batches(value);
      }
    }
    Impl& impl;
    std::optional<bool> even;
  };
  const auto run_body = [&] {
    const EvenBatches even(*impl_, options.even_batches);
    body();
  };
  impl_->stamped([&] {
    if (!named.empty() && joined.size() < std::set(named.begin(), named.end()).size()) {
      throw UsageError({.what = "a model that this accelerator did not prepare",
                        .where = "join_uneven_inputs",
                        .hint = "name the models that prepare() returned, or none"});
    }
    if (num_processes() == 1) return run_body();
    impl_->strategy->join_uneven_inputs(run_body, options, joined, others);
  });
}

}  // namespace accelerate
