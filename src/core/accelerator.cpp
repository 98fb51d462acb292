#include "accelerate/accelerator.h"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <cstdio>
#include <vector>

#include "accelerate/errors.h"
#include "base/environment.h"
#include "compat/cuda_plugin.h"
#include "core/optimizer_placement.h"

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

}  // namespace

struct Accelerator::Impl {
  AcceleratorOptions options;
  ProcessState state;
  std::shared_ptr<Communicator> communicator;
  std::unique_ptr<Strategy> strategy;
  std::shared_ptr<detail::PassCounter> passes = std::make_shared<detail::PassCounter>();

  // A module keeps its strategy however often it is prepared.
  struct Model {
    std::shared_ptr<torch::nn::Module> module;
    std::shared_ptr<ModelStrategy> strategy;
  };
  std::vector<Model> models;
  std::vector<std::shared_ptr<torch::optim::Optimizer>> optimizers;

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
  impl_->passes->rank = impl_->state.rank();
  impl_->passes->world_size = impl_->state.world_size();
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
std::shared_ptr<detail::PassCounter> Accelerator::passes() const { return impl_->passes; }

void Accelerator::place_module(torch::nn::Module& module) const {
  if (impl_->options.device_placement) module.to(device());
}

std::shared_ptr<ModelStrategy> Accelerator::wrap_module(
    const std::shared_ptr<torch::nn::Module>& module) {
  for (const Impl::Model& model : impl_->models) {
    if (model.module == module) return model.strategy;
  }
  return impl_->stamped([&] {
    auto strategy = impl_->strategy->wrap(module);
    impl_->models.push_back({module, strategy});
    return strategy;
  });
}

PreparedOptimizer Accelerator::prepare_optimizer(
    std::shared_ptr<torch::optim::Optimizer> optimizer) {
  if (impl_->options.device_placement) place_optimizer_state(*optimizer);
  impl_->optimizers.push_back(optimizer);
  return PreparedOptimizer(std::move(optimizer), impl_->passes);
}

LoaderShard Accelerator::loader_shard(const LoaderOptions& options) {
  return impl_->stamped([&] {
    const uint64_t own_seed =
        options.seed.value_or(at::detail::getDefaultCPUGenerator().current_seed());
    // Rank 0 decides: all ranks must shuffle alike.
    at::Tensor seed = at::tensor(static_cast<int64_t>(own_seed), at::kLong);
    impl_->communicator->broadcast(seed);
    const LoaderShard shard{.rank = impl_->state.rank(),
                            .world_size = impl_->state.world_size(),
                            .split_batches = impl_->options.data_loader.split_batches,
                            .even_batches = impl_->options.data_loader.even_batches,
                            .device = device(),
                            .place_on_device = impl_->options.device_placement,
                            .seed = static_cast<uint64_t>(seed.item<int64_t>())};
    detail::check_shard(options, shard, false);
    return shard;
  });
}

void Accelerator::backward(const at::Tensor& loss) {
  impl_->stamped([&] {
    impl_->communicator->guard("backward", [&] {
      for (const Impl::Model& model : impl_->models) model.strategy->before_backward(loss);
      loss.backward();
      for (const Impl::Model& model : impl_->models) model.strategy->after_backward();
    });
    impl_->passes->forwards_since_backward = 0;
    ++impl_->passes->backwards;
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
  for (const Impl::Model& model : impl_->models) model.strategy->release();
  impl_->models.clear();
  impl_->optimizers.clear();
  if (device().is_cuda()) compat::cuda_plugin()->empty_cache();
}

}  // namespace accelerate
