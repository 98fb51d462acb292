// Backward passes, windows of accumulation, clipping and joins.
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>
#include <vector>

#include "accelerate/accelerator.h"
#include "comm/communicator_impl.h"
#include "compat/gradient_values.h"
#include "core/accelerator_impl.h"
#include "strategy/uneven_join.h"

namespace accelerate {
namespace {

void require_gradients(const std::vector<at::Tensor>& parameters, const char* where) {
  const auto has_gradient = [](const at::Tensor& parameter) { return parameter.grad().defined(); };
  if (std::ranges::any_of(parameters, has_gradient)) return;
  throw UsageError({.what = "none of the parameters has a gradient",
                    .where = where,
                    .hint = "call it after Accelerator::backward() and before zero_grad()"});
}

// Throws UsageError here and, if models are joined, on all ranks.
[[noreturn]] void refuse_in_join(const std::vector<detail::PreparedModels::Entry>& models,
                                 Communicator& ranks, ErrorInfo info) {
  for (const auto& model : models) {
    const detail::JoinMember* member = model.strategy->join_member();
    if (member == nullptr || member->join() == nullptr) continue;
    ranks.guard("backward", [&] { member->join()->refuse_for_all(info); });
  }
  throw UsageError(std::move(info));
}

}  // namespace

std::vector<at::Tensor> Accelerator::Impl::gradients() const {
  std::vector<at::Tensor> parameters;
  for (const auto& entry : models->entries) {
    std::ranges::copy(entry.module->parameters(), std::back_inserter(parameters));
  }
  for (const PreparedOptimizer& prepared : optimizers->live()) {
    for (const auto& group : prepared.optimizer().param_groups()) {
      std::ranges::copy(group.params(), std::back_inserter(parameters));
    }
  }
  return distinct_gradients(parameters);
}

std::vector<at::Tensor> Accelerator::trained_parameters() const {
  std::vector<at::Tensor> all;
  std::set<const void*> seen;
  const auto add = [&](const std::vector<at::Tensor>& parameters) {
    for (const at::Tensor& parameter : parameters) {
      if (seen.insert(parameter.unsafeGetTensorImpl()).second) all.push_back(parameter);
    }
  };
  for (const auto& entry : impl_->models->entries) add(entry.module->parameters());
  for (const PreparedOptimizer& prepared : impl_->optimizers->live()) {
    for (const auto& group : prepared.optimizer().param_groups()) add(group.params());
  }
  return all;
}

void Accelerator::finish_iteration() const {
  if (impl_->updates) (void)impl_->updates->scaler();
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
    impl_->streams->separate();
    const auto batch = impl_->passes->current();
    impl_->window->begin_micro_batch(batch && batch->is_last);
    const bool averages =
        impl_->window->sync_gradients() || impl_->options.gradient_accumulation.sync_each_batch;
    std::vector<std::pair<std::shared_ptr<ModelStrategy>, bool>> before;
    for (const auto& entry : impl_->models->entries) {
      if (!models.empty() && std::ranges::find(models, entry.strategy) == models.end()) continue;
      const bool sync = entry.strategy->gradient_sync();
      before.emplace_back(entry.strategy, sync);
      // Where no_sync or LocalSgd keeps gradients on their rank, they stay there.
      entry.strategy->set_gradient_sync(sync && averages);
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
    const auto& models = impl_->models->entries;
    if (const auto batch = impl_->joining ? impl_->passes->current() : std::nullopt) {
      for (const auto& model : models) model.strategy->set_batch_weight(batch->size);
    }
    if (impl_->joining && options.weight && num_processes() > 1) {
      refuse_in_join(models, *impl_->communicator,
                     {.what = "a weighted loss inside join_uneven_inputs",
                      .where = "backward",
                      .hint = "leave the weight out and join with JoinDivisor::kSamples"});
    }
    const auto exchanges = [](const auto& model) {
      return model.strategy->join_member() != nullptr && model.strategy->gradient_sync();
    };
    if (!impl_->joining && std::ranges::any_of(models, exchanges)) {
      impl_->communicator->impl().compare(options.weight ? "backward of a loss with a weight"
                                                         : "backward of a loss without a weight");
    }
    at::Tensor counted = impl_->window->counted(loss, options.weight);
    GradientMarks unscaled;
    if (impl_->updates) {
      impl_->optimizers->live();  // lets go of those that are no more
      counted = impl_->updates->scale(counted);
      unscaled = impl_->updates->unscaled_gradients();
    }
    impl_->communicator->guard("backward", [&] {
      for (const auto& model : models) model.strategy->before_backward(counted);
      counted.backward({}, options.retain_graph);
      for (const auto& model : models) model.strategy->after_backward();
    });
    if (unscaled.changed()) {
      throw UsageError({.what = "a loss was added to gradients that were unscaled already",
                        .where = "backward",
                        .hint = "call step() or zero_grad() after clip_grad_norm_ or "
                                "unscale_gradients, before the next backward()"});
    }
  });
}

at::Tensor Accelerator::grad_norm(const std::vector<at::Tensor>& parameters,
                                  const ClipNormOptions& options) {
  return impl_->stamped([&] {
    require_gradients(parameters, "grad_norm");
    impl_->unscale_gradients_of(parameters, "grad_norm");
    return accelerate::grad_norm(parameters, options);
  });
}

at::Tensor Accelerator::clip_grad_norm_(const std::vector<at::Tensor>& parameters, double max_norm,
                                        const ClipNormOptions& options) {
  return impl_->stamped([&] {
    require_gradients(parameters, "clip_grad_norm_");
    impl_->unscale_gradients_of(parameters, "clip_grad_norm_");
    return accelerate::clip_grad_norm_(parameters, max_norm, options);
  });
}

void Accelerator::clip_grad_value_(const std::vector<at::Tensor>& parameters, double clip_value) {
  impl_->stamped([&] {
    require_gradients(parameters, "clip_grad_value_");
    impl_->unscale_gradients_of(parameters, "clip_grad_value_");
    accelerate::clip_grad_value_(parameters, clip_value);
  });
}

void Accelerator::unscale_gradients() {
  if (!impl_->updates) return;
  impl_->stamped([&] {
    impl_->require_complete_gradients("unscale_gradients");
    for (const PreparedOptimizer& prepared : impl_->optimizers->live()) {
      impl_->updates->unscale(prepared.optimizer());
    }
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
  std::vector<std::shared_ptr<ModelStrategy>> joined;
  std::vector<std::shared_ptr<ModelStrategy>> others;
  for (const auto& entry : impl_->models->entries) {  // in the order in which backward asks them
    const bool is_named = std::ranges::find(named, entry.strategy) != named.end();
    (named.empty() || is_named ? joined : others).push_back(entry.strategy);
  }
  // Ends with the body, however that ends.
  struct InsideJoin {
    explicit InsideJoin(Impl& impl, std::optional<bool> even) : impl(impl), even(even) {
      impl.joining = true;
      reset_batch_weights();
      if (even) override_even_batches(even);
    }
    ~InsideJoin() {
      impl.joining = false;
      reset_batch_weights();
      if (even) override_even_batches(std::nullopt);
    }
    void reset_batch_weights() const {
      for (const auto& entry : impl.models->entries) entry.strategy->set_batch_weight(1);
    }
    void override_even_batches(std::optional<bool> value) const {
      for (const auto& loader : impl.loaders) {
        if (const auto control = loader->control()) control->set_even_batches(value);
      }
    }
    Impl& impl;
    std::optional<bool> even;
  };
  const auto run_body = [&] {
    const InsideJoin inside(*impl_, options.even_batches);
    body();
  };
  impl_->stamped([&] {
    if (!named.empty() && joined.size() < std::set(named.begin(), named.end()).size()) {
      throw UsageError({.what = "a model that this accelerator did not prepare",
                        .where = "join_uneven_inputs",
                        .hint = "name the models that prepare() returned, or none"});
    }
    impl_->strategy->join_uneven_inputs(run_body, options, joined, others);
  });
}

}  // namespace accelerate
