#include "accelerate/detail/loader_pass.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include "accelerate/errors.h"

namespace accelerate::detail {
namespace {

BatchShard batch_shard(int64_t n, const LoaderOptions& options,
                       const std::optional<LoaderShard>& shard) {
  const LoaderShard one = shard.value_or(LoaderShard{});
  return BatchShard({.n = n,
                     .batch_size = options.batch_size,
                     .drop_last = options.drop_last,
                     .split_batches = one.split_batches,
                     .even_batches = one.even_batches && one.world_size > 1,
                     .world_size = one.world_size,
                     .rank = one.rank});
}

uint64_t seed_of(const PassOptions& options) {
  if (options.shard) return options.shard->seed;
  if (options.loader.seed) return *options.loader.seed;
  return at::detail::getDefaultCPUGenerator().current_seed();
}

}  // namespace

void check_dataset(const void* dataset) {
  if (dataset == nullptr) {
    throw UsageError({.what = "a loader needs a dataset, got a null pointer"});
  }
}

void check_options(const LoaderOptions& options) { batch_shard(0, options, std::nullopt); }

void check_shard(const LoaderOptions& options, const LoaderShard& shard, bool already_sharded) {
  if (already_sharded) {
    throw UsageError({.what = "this loader is sharded already",
                      .hint = "shard the loader that data_loader() returned"});
  }
  batch_shard(0, options, shard);
}

at::Tensor shuffled_order(int64_t n, uint64_t seed) {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  return at::randperm(n, generator, at::TensorOptions().dtype(at::kLong));
}

LoaderPass::LoaderPass(PassOptions options)
    : shard_(batch_shard(options.n, options.loader, options.shard)) {
  if (options.shard && options.shard->place_on_device) device_ = options.shard->device;
  info_.epoch = options.epoch;
  if (done()) return;
  if (options.loader.shuffle) {
    order_ = shuffled_order(options.n, seed_of(options) + static_cast<uint64_t>(options.epoch));
  }
  select();
}

int64_t LoaderPass::rounds(const PassOptions& options) {
  return batch_shard(options.n, options.loader, options.shard).rounds();
}

void LoaderPass::advance() {
  ++info_.index;
  if (!done()) select();
}

void LoaderPass::select() {
  const BatchShard::Round round = shard_.round(info_.index);
  info_.is_last = info_.index + 1 == shard_.rounds();
  info_.size = round.size;
  info_.valid = round.valid;
  // Not const_data_ptr: clang and the g++ of the wheels mangle that template differently.
  const int64_t* order = order_.defined() ? order_.data_ptr<int64_t>() : nullptr;
  indices_.resize(static_cast<size_t>(round.size));
  for (int64_t slot = 0; slot < round.size; ++slot) {
    const int64_t place = shard_.wrapped(round.first + slot);
    indices_[static_cast<size_t>(slot)] = static_cast<size_t>(order ? order[place] : place);
  }
}

at::Tensor LoaderPass::place(const at::Tensor& tensor) const {
  if (!device_ || !tensor.defined()) return tensor;
  return tensor.to(*device_);
}

}  // namespace accelerate::detail
