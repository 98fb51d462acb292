// What prepare() does with each kind of object.
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "accelerate/accelerator.h"
#include "accelerate/empty_weights.h"
#include "accelerate/log.h"
#include "comm/agreement.h"
#include "comm/groups/activity.h"
#include "compat/deferred.h"
#include "compat/share_names.h"
#include "compat/touched.h"
#include "core/accelerator_impl.h"
#include "core/process/step_aggregator.h"
#include "core/scheduler_host.h"
#include "data/data_agreement.h"
#include "device/device_backend.h"
#include "device/replay_actions.h"
#include "optim/drop_gradients.h"
#include "optim/optimizer_placement.h"
#include "optim/torch_schedule.h"
#include "strategy/strategy_factory.h"

namespace accelerate {
namespace {

template <class Pointer>
void require_not_null(const Pointer& pointer, const char* what) {
  if (pointer) return;
  throw UsageError({.what = std::string("a null pointer instead of ") + what,
                    .where = "prepare",
                    .hint = "make the object first"});
}

// The models that have one of `parameters`.
std::vector<std::shared_ptr<ModelStrategy>> strategies_with_any_of(
    const PreparedModels& models, const std::vector<at::Tensor>& parameters) {
  std::unordered_set<const void*> wanted;
  for (const at::Tensor& parameter : parameters) wanted.insert(parameter.unsafeGetTensorImpl());
  std::vector<std::shared_ptr<ModelStrategy>> strategies;
  for (const auto& [module, strategy] : models) {
    const bool has_one = std::ranges::any_of(module->parameters(), [&](const at::Tensor& own) {
      return wanted.contains(own.unsafeGetTensorImpl());
    });
    if (has_one) strategies.push_back(strategy);
  }
  return strategies;
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
  comm::require_same(ranks, own.str(), [](const comm::RankDifference& difference) {
    return ErrorInfo{.what = "the ranks' loaders differ: " + difference.text("has"),
                     .where = "prepare",
                     .hint = "give all ranks the same data and options"};
  });
}

// "batch 128 = 64 x 2 ranks"; empty where there is one rank or the size is not known.
std::string batch_size_text(const LoaderOptions& options, bool is_batch_stream, int world_size,
                            bool split_batches) {
  const auto size =
      options.batch_sampler ? options.batch_sampler->batch_size() : options.batch_size;
  if (world_size == 1 || is_batch_stream || !size) return {};
  const int64_t of_rank = split_batches ? *size / world_size : *size;
  return "batch " + std::to_string(of_rank * world_size) + " = " + std::to_string(of_rank) + " x " +
         std::to_string(world_size) + " ranks";
}

bool has_embeddings(const torch::nn::Module& module) {
  return std::ranges::any_of(module.modules(), [](const auto& each) {
    return each->name().find("Embedding") != std::string::npos;
  });
}

// The strategy that has put shares into its groups updates and exchanges them; nobody else would.
void require_no_shares(const torch::optim::Optimizer& optimizer) {
  for (const at::Tensor& parameter : parameters_of(optimizer)) {
    const auto name = compat::parameter_of_share(parameter);
    if (!name) continue;
    throw UsageError({.what = "this optimizer was prepared before for a sharded model: it holds "
                              "this rank's share of '" +
                              *name + "' in place of the parameter",
                      .where = "prepare",
                      .hint = "make a new optimizer of the parameters of the module"});
  }
}

void require_no_pieces(const torch::nn::Module& module) {
  for (const auto& item : module.named_parameters()) {
    if (compat::touched_storage(item.value()) == nullptr) continue;
    throw UsageError({.what = "'" + item.key() +
                              "' is in pieces on several ranks already: the module was prepared "
                              "before",
                      .where = "prepare",
                      .hint = "go on with what prepare() returned, or build the module anew and "
                              "load a checkpoint"});
  }
}

// Whether a tensor was made inside of init_empty_weights().
bool has_deferred_weights(const torch::nn::Module& module) {
  return std::ranges::any_of(module.parameters(), compat::is_deferred) ||
         std::ranges::any_of(module.buffers(), compat::is_deferred);
}

}  // namespace

// Whether the inputs are of the type of the parameters is seen in the forward pass alone, where
// libtorch names neither. Models of tokens take integers.
void Accelerator::Impl::say_flat_inputs(const torch::nn::Module& module) {
  if (!options.flat || options.flat->dtype == at::kFloat || said_flat_inputs) return;
  if (precision.mixed_precision() != MixedPrecision::kNo || has_embeddings(module)) return;
  said_flat_inputs = true;
  if (!state.is_main_process()) return;
  const std::string type = c10::toString(options.flat->dtype);
  const std::string wanted = options.flat->dtype == at::kHalf ? "fp16" : "bf16";
  accelerate::log(LogLevel::kWarning,
                  "the parameters of this model are " + type +
                      " now (AcceleratorOptions::flat), and without mixed precision its "
                      "layers refuse inputs of another type (\"must have the same dtype\"): "
                      "set AcceleratorOptions::mixed_precision = \"" +
                      wanted + "\", or give it inputs in " + type);
}

std::shared_ptr<ModelStrategy> Accelerator::wrap_module(
    const std::shared_ptr<torch::nn::Module>& module, bool place) {
  impl_->stamped([&] {
    require_not_null(module, "a model");
    if (compat::DeferScope::is_open()) {
      throw UsageError({.what = "a model is prepared inside of init_empty_weights()",
                        .where = "prepare",
                        .hint = "end the scope when the module is built"});
    }
    const bool places = place && impl_->options.device_placement;
    // Those of a program that places its models itself may be meant to stay on the meta device.
    const bool fills = places ? has_empty_weights(*module) : has_deferred_weights(*module);
    if (!impl_->strategy->fills_empty_weights() && fills) {
      materialize(*module, places ? device() : c10::Device(c10::kCPU));
    }
    if (places) impl_->strategy->place(*module, device());
  });
  impl_->optimizers->drop_expired();  // models give those of the rest their parameters back
  std::erase_if(impl_->models, [](const auto& entry) {
    if (entry.strategy->usable()) return false;
    entry.strategy->release();  // its hooks on the parameters would get in the way of new ones
    return true;
  });
  for (const auto& entry : impl_->models) {
    if (entry.module == module) return entry.strategy;
  }
  return impl_->stamped([&] {
    const comm::Activity activity(*impl_->communicator, "prepare");
    require_no_pieces(*module);
    if (impl_->configuration) {
      if (const auto sized = impl_->configuration->options_for(*module)) {
        set_zero_options(*impl_->strategy, *sized);
        impl_->options.strategy = *sized;
      }
    }
    auto strategy = impl_->strategy->wrap(module);
    if (!impl_->shapes_recorded.expired() && !strategy->layout().empty()) {
      refuse_shapes_of_shards("prepare");
    }
    const auto events = comm::events_of(*impl_->communicator);
    strategy->set_on_forward(
        [checks = impl_->checks, streams = impl_->streams, state = impl_->state,
         optimizers = impl_->optimizers, unfit = impl_->unfit, events] {
          events->emit(Event(EventKind::kSpanBegin, kForwardSpan));
          detail::stamped(state, [&] {
            checks->before_call("forward");
            device::device_backend(state.device().type()).before_forward();
          });
          if (unfit) unfit->hold_hooks(!device::KeptGradients::active());
          optimizers->drop_expired();  // the strategy may look at the rest
          streams->separate();
        },
        [events] { events->emit(Event(EventKind::kSpanEnd, kForwardSpan)); });
    impl_->models.push_back({.module = module, .strategy = strategy});
    impl_->watch_passes();
    impl_->say_flat_inputs(*module);
    return strategy;
  });
}

detail::ZeroGrad Accelerator::zero_grad_of_models() const { return impl_->zero_grad_of_models(); }

PreparedOptimizer Accelerator::prepare_optimizer(std::shared_ptr<torch::optim::Optimizer> optimizer,
                                                 bool place) {
  impl_->stamped([&] {
    require_not_null(optimizer, "an optimizer");
    impl_->configured->refuse_own(*optimizer);
    const bool is_adapter = &detail::own_optimizer(*optimizer) != optimizer.get();
    if (is_adapter || impl_->optimizers->find(*optimizer) != nullptr) {
      throw UsageError(
          {.what = "this optimizer was prepared before",
           .where = "prepare",
           .hint =
               "use the PreparedOptimizer that prepare() returned, or call free_memory() first"});
    }
  });
  if (place && impl_->options.device_placement) {
    device::device_backend(device().type()).follow(detail::own_optimizer(*optimizer));
    place_optimizer_state(*optimizer);
  }
  return impl_->stamped([&] {
    const comm::Activity activity(*impl_->communicator, "prepare");
    comm::together(*impl_->communicator, [&] { require_no_shares(*optimizer); });
    auto strategy = impl_->strategy->prepare_optimizer(
        {.optimizer = *optimizer,
         .models = strategies_with_any_of(impl_->models, parameters_of(*optimizer))});
    const bool trains_pieces = strategy->layout().has_value();
    const PreparedOptimizer prepared(std::move(optimizer), std::move(strategy),
                                     impl_->optimizer_host);
    if (impl_->updates && trains_pieces) {
      impl_->updates->add_pieces(prepared.optimizer(), [strategy = &prepared.strategy()] {
        return strategy->parameters();
      });
    }
    impl_->optimizers->add(prepared);
    impl_->watch_passes();
    return prepared;
  });
}

PreparedScheduler Accelerator::prepare_torch_scheduler(detail::TorchScheduler adapted) {
  impl_->stamped([&] { require_not_null(adapted.scheduler, "a scheduler"); });
  // Searched for until it is found, at the latest by the first step, and never again: the scheduler
  // may outlive its optimizer, and would then read freed memory.
  const auto find = [optimizers = impl_->optimizers, number = std::make_shared<int64_t>(0)](
                        const std::function<std::vector<double>()>& rates) {
    if (*number == 0) *number = optimizers->number_read_by(rates);
    return optimizers->numbered(*number);
  };
  const Scheduler scheduler = adapt_torch_scheduler(std::move(adapted), find);
  (void)scheduler.optimizer_if_known();
  return prepare_scheduler(scheduler);
}

PreparedScheduler Accelerator::prepare_scheduler(const Scheduler& scheduler) {
  return impl_->stamped([&] {
    impl_->configured->refuse_own_scheduler();
    return impl_->prepare_scheduler(scheduler, impl_->options.scheduler);
  });
}

PreparedScheduler Accelerator::Impl::prepare_scheduler(const Scheduler& scheduler,
                                                       const PreparedSchedulerOptions& how) {
  if (scheduler.is_adapted()) {
    // The user's object may be gone as soon as the last handle is.
    schedulers.push_back(scheduler.weak_handle());
  } else {
    schedulers.push_back([scheduler] { return std::optional(scheduler); });
  }
  const bool says_pace = !scheduler.needs_metric() && !std::exchange(said_pace, true);
  return PreparedScheduler(
      scheduler,
      {.num_processes = state.world_size(),
       .is_main_process = state.is_main_process(),
       .says_pace = says_pace,
       .split_batches = options.data_loader.split_batches,
       .adjust_scheduler = options.gradient_accumulation.adjust_scheduler},
      how, std::make_shared<TrainingSchedulerHost>(state, scheduler, window, optimizers, updates));
}

PreparedOptimizer Accelerator::prepare_configured(const ConfiguredOptimizer& optimizer,
                                                  bool place) {
  auto chosen = impl_->stamped([&] { return impl_->configured->optimizer(optimizer); });
  return prepare_optimizer(std::move(chosen), place);
}

PreparedScheduler Accelerator::prepare_configured(const ConfiguredScheduler& scheduler) {
  return impl_->stamped([&] {
    const ConfiguredObjects::Chosen chosen = impl_->configured->scheduler(scheduler);
    if (!chosen.is_configured) {
      return impl_->prepare_scheduler(chosen.scheduler, impl_->options.scheduler);
    }
    if (std::exchange(impl_->has_schedule, true)) {
      throw UsageError({.what = "the schedule of the configuration was prepared before",
                        .where = "prepare",
                        .hint = "use the PreparedScheduler that prepare() returned first"});
    }
    PreparedSchedulerOptions how;
    how.pace = SchedulerPace::kPerOptimizerStep;  // it counts updates
    return impl_->prepare_scheduler(chosen.scheduler, how);
  });
}

void Accelerator::say_rank_zero_reads() {
  if (impl_->state.world_size() == 1 || std::exchange(impl_->said_rank_zero_reads, true)) return;
  if (!is_main_process()) return;
  accelerate::log(
      LogLevel::kWarning,
      "rank 0 reads the batches of a torch::data loader for all ranks, because only the loader "
      "knows their order; give its dataset to accelerate::data_loader and each rank reads its "
      "own "
      "share");
}

bool Accelerator::reads_data(bool is_batch_stream) const {
  const bool dispatch = impl_->options.data_loader.dispatch_batches || is_batch_stream;
  return !dispatch || is_main_process();
}

LoaderShard Accelerator::loader_shard(const LoaderOptions& options, bool is_batch_stream,
                                      const LoaderState& state, bool has_seed, bool place,
                                      const std::optional<detail::SampleDigest>& digest) {
  return impl_->stamped([&] {
    const comm::Activity activity(*impl_->communicator, "prepare");
    const ShardingOptions& sharding = impl_->options.data_loader;
    const bool dispatch = sharding.dispatch_batches || is_batch_stream;
    require_same_loader(options, state, dispatch, *impl_->communicator);
    if (digest && !dispatch && sharding.compare_samples && impl_->state.world_size() > 1) {
      require_same_data(*digest, state.size, device(), *impl_->communicator);
    }
    const uint64_t own_seed = has_seed ? state.seed : sharding.data_seed.value_or(state.seed);
    if (const std::string size = batch_size_text(options, is_batch_stream,
                                                 impl_->state.world_size(), sharding.split_batches);
        is_main_process() && !size.empty() && size != impl_->said_batch) {
      accelerate::log(LogLevel::kInfo, size);
      impl_->said_batch = size;
    }
    const auto batch_size =
        options.batch_sampler ? options.batch_sampler->batch_size() : options.batch_size;
    if (impl_->configuration && batch_size && !is_batch_stream) {
      impl_->configuration->add_loader(*batch_size);
    }
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

void Accelerator::follow_loader(std::unique_ptr<detail::FollowedLoader> loader) {
  std::erase_if(impl_->loaders, [](const auto& known) { return !known->control(); });
  loader->control()->set_passes(impl_->passes);
  impl_->loaders.push_back(std::move(loader));
}

}  // namespace accelerate
