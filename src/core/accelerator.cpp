#include "accelerate/accelerator.h"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <iterator>
#include <set>
#include <sstream>
#include <vector>

#include "accelerate/errors.h"
#include "base/bar_screen.h"
#include "base/environment.h"
#include "compat/cuda_plugin.h"
#include "compat/gradient_values.h"
#include "core/gradient_window.h"
#include "core/prepared_optimizers.h"
#include "core/scaled_updates.h"
#include "optim/optimizer_placement.h"

namespace accelerate {
namespace {

int64_t accumulation_steps(const GradientAccumulationOptions& options) {
  if (options.steps) return *options.steps;
  constexpr const char* kName = "ACCELERATE_GRADIENT_ACCUMULATION_STEPS";
  const auto value = environment_variable(kName);
  if (!value || value->empty()) return 1;
  int64_t steps = 0;
  const char* end = value->data() + value->size();
  const auto [rest, error] = std::from_chars(value->data(), end, steps);
  if (error == std::errc() && rest == end && steps >= 1) return steps;
  throw ConfigError({.what = "\"" + *value + "\" is no number of micro-batches",
                     .where = std::string("environment variable ") + kName,
                     .hint = "set it to 1 or more"});
}

void require_gradients(const std::vector<at::Tensor>& parameters, const char* where) {
  const auto has_gradient = [](const at::Tensor& parameter) { return parameter.grad().defined(); };
  if (std::ranges::any_of(parameters, has_gradient)) return;
  throw UsageError({.what = "none of the parameters has a gradient",
                    .where = where,
                    .hint = "call it after Accelerator::backward() and before zero_grad()"});
}

template <class Pointer>
void require_not_null(const Pointer& pointer, const char* what) {
  if (pointer) return;
  throw UsageError({.what = std::string("a null pointer instead of ") + what,
                    .where = "prepare",
                    .hint = "make the object first"});
}

// Loaders that differ would give the ranks different numbers of batches, and the first rank to
// finish would leave the others waiting.
void require_same_loader(const LoaderOptions& options, const LoaderState& state, bool dispatch,
                         Communicator& ranks) {
  std::ostringstream own;
  // Where rank 0 reads for all, nobody asks what the others have.
  if (state.size >= 0 && !dispatch) own << state.size << " samples in ";
  own << "batches of " << options.batch_size << (options.shuffle ? ", shuffled" : "")
      << (options.drop_last ? ", drop_last" : "") << (options.sampler ? ", with a sampler" : "")
      << (options.batch_sampler ? ", with a batch sampler" : "");
  if (!dispatch && (state.epoch != 0 || state.position != 0)) {
    own << ", standing at " << state.position << " of epoch " << state.epoch;
  }
  const std::vector<std::string> all = ranks.all_gather_bytes(own.str());
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    throw UsageError({.what = "the ranks' loaders differ: rank 0 has " + all[0] + ", rank " +
                              std::to_string(rank) + " has " + all[rank],
                      .where = "prepare",
                      .hint = "give all ranks the same data and options"});
  }
}

}  // namespace

struct Accelerator::Impl {
  AcceleratorOptions options;
  ProcessState state;
  std::shared_ptr<Communicator> communicator;
  std::unique_ptr<Strategy> strategy;
  // A module keeps its strategy however often it is prepared.
  std::shared_ptr<detail::PreparedModels> models = std::make_shared<detail::PreparedModels>();
  std::vector<std::weak_ptr<detail::LoaderControl>> loaders;
  std::shared_ptr<detail::OpenPasses> passes = std::make_shared<detail::OpenPasses>();

  bool joining = false;  // inside join_uneven_inputs

  PrecisionPolicy precision;
  std::shared_ptr<ScaledUpdates> updates;  // null unless losses are scaled
  std::shared_ptr<PreparedOptimizers> optimizers;
  std::shared_ptr<GradientWindow> window;
  Trigger trigger;

  bool prepared(const std::shared_ptr<ModelStrategy>& strategy) const {
    return std::ranges::any_of(models->entries,
                               [&](const auto& entry) { return entry.strategy == strategy; });
  }

  void require_complete_gradients(const char* where) const {
    if (window->sync_gradients()) return;
    throw UsageError({.what = "gradients that still accumulate cannot be unscaled",
                      .where = where,
                      .hint = "clip and unscale where sync_gradients() is true"});
  }

  // Of their own optimizers alone: the gradients of others may not be there yet.
  void unscale_gradients_of(const std::vector<at::Tensor>& parameters, const char* where) {
    if (!updates) return;
    require_complete_gradients(where);
    bool found = false;
    for (const PreparedOptimizer& prepared : optimizers->live()) {
      if (!has_any_of(prepared.optimizer(), parameters)) continue;
      found = true;
      updates->unscale(prepared.optimizer());
    }
    if (found) return;
    throw UsageError({.what = "scaled gradients of parameters that no prepared optimizer has",
                      .where = where,
                      .hint = "give the optimizer of these parameters to prepare()"});
  }

  // Of all that losses may reach.
  std::vector<at::Tensor> gradients() const {
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

  // Runs `call` and stamps the errors that pass through with the rank.
  template <class Call>
  auto stamped(Call call) const {
    try {
      return call();
    } catch (Error& error) {
      error.set_rank(state.rank(), state.world_size());
      throw;
    }
  }
};

Accelerator::Accelerator(AcceleratorOptions options) : impl_(std::make_unique<Impl>()) {
  impl_->options = options;
  impl_->state = ProcessState::from_environment({.cpu = options.cpu});
  impl_->models->rank = impl_->state.rank();
  impl_->models->world_size = impl_->state.world_size();
  impl_->stamped([&] {
    if (impl_->state.device().is_cuda()) {
      compat::cuda_plugin()->set_device(impl_->state.device().index());
    }
    impl_->communicator = std::make_shared<Communicator>(impl_->state, options.process_group);
    impl_->strategy = make_strategy(impl_->communicator, options.ddp);
    impl_->precision =
        PrecisionPolicy(resolve_mixed_precision(options.mixed_precision, environment_variable),
                        device(), options.precision);
    if (impl_->precision.needs_grad_scaler()) {
      impl_->updates = std::make_shared<ScaledUpdates>(options.grad_scaler);
    }
    impl_->optimizers = std::make_shared<PreparedOptimizers>(
        [updates = impl_->updates](const torch::optim::Optimizer& gone) {
          if (updates) updates->discard(gone);
        });
    impl_->window = std::make_shared<GradientWindow>(
        accumulation_steps(options.gradient_accumulation),
        options.gradient_accumulation.sync_with_dataloader, impl_->communicator,
        [impl = impl_.get()] { return impl->gradients(); });
  });
}

Accelerator::~Accelerator() = default;
Accelerator::Accelerator(Accelerator&&) noexcept = default;
Accelerator& Accelerator::operator=(Accelerator&&) noexcept = default;

const ProcessState& Accelerator::state() const { return impl_->state; }
std::string Accelerator::strategy_name() const { return std::string(impl_->strategy->name()); }
Communicator& Accelerator::communicator() const { return *impl_->communicator; }

void Accelerator::place_module(const std::shared_ptr<torch::nn::Module>& module) const {
  impl_->stamped([&] { require_not_null(module, "a model"); });
  if (impl_->options.device_placement) module->to(device());
}

std::shared_ptr<ModelStrategy> Accelerator::wrap_module(
    const std::shared_ptr<torch::nn::Module>& module) {
  auto& entries = impl_->models->entries;
  std::erase_if(entries, [](const auto& entry) {
    if (entry.strategy->usable()) return false;
    entry.strategy->release();  // its hooks on the parameters would get in the way of new ones
    return true;
  });
  for (const auto& entry : entries) {
    if (entry.module == module) return entry.strategy;
  }
  return impl_->stamped([&] {
    auto strategy = impl_->strategy->wrap(module);
    entries.push_back({module, strategy});
    return strategy;
  });
}

PreparedOptimizer Accelerator::prepare_optimizer(std::shared_ptr<torch::optim::Optimizer> optimizer,
                                                 bool place) {
  impl_->stamped([&] {
    require_not_null(optimizer, "an optimizer");
    if (impl_->optimizers->find(*optimizer) != nullptr) {
      throw UsageError({.what = "this optimizer was prepared before",
                        .where = "prepare",
                        .hint = "go on with the PreparedOptimizer that prepare() returned, or call "
                                "free_memory() first"});
    }
  });
  if (place && impl_->options.device_placement) place_optimizer_state(*optimizer);
  OptimizerSurroundings surroundings{
      .sync_gradients = [window = impl_->window] { return window->sync_gradients(); },
      .require_complete = [window = impl_->window] { window->require_complete(); },
      .accumulates = [window = impl_->window] { return window->steps() > 1; },
      .before_zero_grad =
          [window = impl_->window,
           updates = impl_->updates](const torch::optim::Optimizer& emptied) {
            window->require_droppable();
            if (updates) updates->discard(emptied);
          }};
  if (impl_->updates) {
    surroundings.run_update = [updates = impl_->updates](torch::optim::Optimizer& scaled,
                                                         const std::function<void()>& update) {
      return updates->step(scaled, update);
    };
  }
  PreparedOptimizer prepared(std::move(optimizer), impl_->models, std::move(surroundings));
  impl_->optimizers->add(prepared);
  return prepared;
}

PreparedScheduler Accelerator::prepare_scheduler(const Scheduler& scheduler) {
  return impl_->stamped([&] {
    const torch::optim::Optimizer* moved = &scheduler.optimizer();
    return PreparedScheduler(
        scheduler,
        {.num_processes = impl_->state.world_size(),
         .is_main_process = impl_->state.is_main_process(),
         .split_batches = impl_->options.data_loader.split_batches,
         .adjust_scheduler = impl_->options.gradient_accumulation.adjust_scheduler,
         .sync_gradients = [window = impl_->window] { return window->sync_gradients(); },
         .optimizer_step_was_skipped =
             [optimizers = impl_->optimizers, moved, rank = impl_->state.rank(),
              world_size = impl_->state.world_size()] {
               if (const auto* prepared = optimizers->find(*moved)) {
                 return prepared->step_was_skipped();
               }
               UsageError error({.what = "a scheduler moves an optimizer that is not prepared",
                                 .where = "PreparedScheduler::step",
                                 .hint = "give the optimizer to prepare() too, and keep what comes "
                                         "back"});
               error.set_rank(rank, world_size);
               throw error;
             }},
        impl_->options.scheduler);
  });
}

bool Accelerator::reads_data(bool is_batch_stream) const {
  const bool dispatch = impl_->options.data_loader.dispatch_batches || is_batch_stream;
  return !dispatch || is_main_process();
}

LoaderShard Accelerator::loader_shard(const LoaderOptions& options, bool is_batch_stream,
                                      const LoaderState& state, bool has_seed, bool place) {
  return impl_->stamped([&] {
    const ShardingOptions& sharding = impl_->options.data_loader;
    const bool dispatch = sharding.dispatch_batches || is_batch_stream;
    require_same_loader(options, state, dispatch, *impl_->communicator);
    const uint64_t own_seed = has_seed ? state.seed : sharding.data_seed.value_or(state.seed);
    // Rank 0 decides: all ranks must shuffle alike.
    at::Tensor agreed = at::tensor({static_cast<int64_t>(own_seed), state.size}, at::kLong);
    impl_->communicator->broadcast(agreed);
    const int64_t* of_rank_zero = agreed.data_ptr<int64_t>();
    LoaderShard shard{.rank = impl_->state.rank(),
                      .world_size = impl_->state.world_size(),
                      .split_batches = sharding.split_batches,
                      .even_batches = sharding.even_batches,
                      .device = device(),
                      .place_on_device = place && impl_->options.device_placement,
                      .non_blocking = sharding.non_blocking,
                      .seed = static_cast<uint64_t>(of_rank_zero[0]),
                      .dispatch = dispatch,
                      .dispatched_size = of_rank_zero[1],
                      .rng_types = sharding.rng_types,
                      .communicator = impl_->communicator};
    const auto kind =
        is_batch_stream ? detail::SourceKind::kBatchStream : detail::SourceKind::kDataset;
    detail::check_shard(options, shard, kind, false);
    return shard;
  });
}

void Accelerator::follow_loader(const std::shared_ptr<detail::LoaderControl>& control) {
  std::erase_if(impl_->loaders, [](const auto& loader) { return loader.expired(); });
  control->set_passes(impl_->passes);
  impl_->loaders.push_back(control);
}

Accumulation Accelerator::begin_micro_batch(std::vector<std::shared_ptr<ModelStrategy>> models) {
  return impl_->stamped([&] {
    for (const auto& model : models) {
      if (impl_->prepared(model)) continue;
      throw UsageError({.what = "a model that this accelerator did not prepare",
                        .where = "accumulate",
                        .hint = "name the models that prepare() returned, or none"});
    }
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
      throw UsageError({.what = "a weighted loss inside join_uneven_inputs",
                        .where = "backward",
                        .hint = "leave the weight out and join with JoinDivisor::kSamples"});
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

const PrecisionPolicy& Accelerator::precision() const { return impl_->precision; }
MixedPrecision Accelerator::mixed_precision() const { return impl_->precision.mixed_precision(); }
Autocast Accelerator::autocast() const { return impl_->precision.autocast(); }
Autocast Accelerator::autocast(const AutocastOptions& options) const {
  return impl_->precision.autocast(options);
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

std::optional<BatchInfo> Accelerator::current_batch() const { return impl_->passes->current(); }
void Accelerator::set_trigger() { impl_->trigger.set(); }
bool Accelerator::check_trigger() {
  return impl_->stamped([&] { return impl_->trigger.check(*impl_->communicator); });
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
      for (const auto& weak : impl.loaders) {
        if (const auto loader = weak.lock()) loader->set_even_batches(value);
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

void Accelerator::wait_for_everyone() const {
  impl_->stamped([&] { impl_->communicator->barrier(); });
}

void Accelerator::print_line(const std::string& text) { write_above_bars(stdout, text + "\n"); }

void Accelerator::free_memory() {
  for (const auto& model : impl_->models->entries) model.strategy->release();
  impl_->models->entries.clear();
  impl_->optimizers->clear();
  if (impl_->updates) impl_->updates->reset();
  impl_->window->reset();
  if (device().is_cuda()) compat::cuda_plugin()->empty_cache();
}

}  // namespace accelerate
