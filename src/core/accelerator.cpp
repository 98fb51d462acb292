#include "accelerate/accelerator.h"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <cstdio>
#include <set>
#include <sstream>
#include <vector>

#include "accelerate/errors.h"
#include "base/environment.h"
#include "compat/cuda_plugin.h"
#include "optim/optimizer_placement.h"

namespace accelerate {
namespace {

// What was asked for at launch must not be ignored in silence.
void require_default(const char* name, const std::string& only_value) {
  const auto value = environment_variable(name);
  if (!value || value->empty() || *value == only_value) return;
  throw ConfigError({.what = std::string(name) + "=" + *value + " is not available",
                     .where = std::string("environment variable ") + name,
                     .hint = "leave it unset, or launch without the flag that sets it"});
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
  std::vector<std::shared_ptr<torch::optim::Optimizer>> optimizers;
  std::vector<std::weak_ptr<detail::LoaderControl>> loaders;
  std::shared_ptr<detail::OpenPasses> passes = std::make_shared<detail::OpenPasses>();

  bool joining = false;  // inside join_uneven_inputs

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
  require_default("ACCELERATE_MIXED_PRECISION", "no");
  require_default("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "1");
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
  impl_->stamped([&] { require_not_null(optimizer, "an optimizer"); });
  if (place && impl_->options.device_placement) place_optimizer_state(*optimizer);
  impl_->optimizers.push_back(optimizer);
  return PreparedOptimizer(std::move(optimizer), impl_->models);
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

void Accelerator::backward(const at::Tensor& loss) {
  impl_->stamped([&] {
    const auto& models = impl_->models->entries;
    if (const auto batch = impl_->joining ? impl_->passes->current() : std::nullopt) {
      for (const auto& model : models) model.strategy->set_batch_weight(batch->size);
    }
    impl_->communicator->guard("backward", [&] {
      for (const auto& model : models) model.strategy->before_backward(loss);
      loss.backward();
      for (const auto& model : models) model.strategy->after_backward();
    });
  });
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

at::Tensor Accelerator::gather(const at::Tensor& tensor) const {
  return impl_->stamped([&] {
    const at::Tensor rows = tensor.dim() == 0 ? tensor.reshape({1}) : tensor;
    return at::cat(impl_->communicator->all_gather(rows));
  });
}

at::Tensor Accelerator::reduce(const at::Tensor& tensor, ReduceOp op) const {
  return impl_->stamped([&] {
    at::Tensor result = tensor.detach().clone();
    impl_->communicator->all_reduce(result, op);
    return result;
  });
}

void Accelerator::wait_for_everyone() const {
  impl_->stamped([&] { impl_->communicator->barrier(); });
}

void Accelerator::print_line(const std::string& text) {
  const std::string line = text + "\n";
  std::fwrite(line.data(), 1, line.size(), stdout);
  std::fflush(stdout);
}

void Accelerator::free_memory() {
  for (const auto& model : impl_->models->entries) model.strategy->release();
  impl_->models->entries.clear();
  impl_->optimizers.clear();
  if (device().is_cuda()) compat::cuda_plugin()->empty_cache();
}

}  // namespace accelerate
