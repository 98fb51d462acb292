#include "accelerate/detail/pass_plan.h"

#include <algorithm>
#include <string>
#include <type_traits>
#include <utility>

#include "accelerate/batch_shard.h"
#include "accelerate/errors.h"

namespace accelerate::detail {
namespace {

bool samples_are_dealt(const LoaderOptions& options) { return !counts_batches(options); }

int64_t batch_size_of(const LoaderOptions& options) {
  return options.batch_sampler ? options.batch_sampler->batch_size().value_or(1)
                               : options.batch_size;
}

BatchShardOptions shard_options(const PassSpec& spec, int64_t size) {
  return {.n = size,
          .start = std::min(spec.start, size),
          .batch_size = batch_size_of(spec.options),
          .drop_last = spec.options.drop_last,
          .split_batches = spec.shard.split_batches,
          // A single process has nobody to be even with.
          .even_batches = spec.shard.even_batches && spec.shard.world_size > 1,
          .world_size = spec.shard.world_size,
          .rank = spec.shard.rank};
}

// Rank 0 reads what all ranks take in a round as one batch.
BatchShardOptions dispatch_options(const PassSpec& spec, int64_t size) {
  BatchShardOptions options = shard_options(spec, size);
  (void)BatchShard(options);  // refuses what the ranks could not be dealt
  if (!options.split_batches) options.batch_size *= options.world_size;
  options.split_batches = false;
  options.even_batches = false;
  options.world_size = 1;
  options.rank = 0;
  return options;
}

const Sampler& sampler_for(const LoaderOptions& options) {
  static const auto in_order = sequential_sampler();
  static const auto shuffled = random_sampler();
  if (options.sampler) return *options.sampler;
  return options.shuffle ? *shuffled : *in_order;
}

// Batches of one size, seen as the samples they hold.
class SamplesOfBatches final : public SampleOrder {
 public:
  SamplesOfBatches(std::shared_ptr<const BatchOrder> batches, int64_t batch_size)
      : batches_(std::move(batches)), batch_size_(batch_size) {
    if (batches_->size() == 0) return;
    std::vector<int64_t> last;
    batches_->read(batches_->size() - 1, last);
    if (last.empty() || static_cast<int64_t>(last.size()) > batch_size_) {
      mixed_sizes(batches_->size() - 1, last.size());
    }
    size_ = (batches_->size() - 1) * batch_size_ + static_cast<int64_t>(last.size());
  }

  int64_t size() const override { return size_; }

  void read(int64_t first, std::span<int64_t> indices) const override {
    std::vector<int64_t> batch;
    while (!indices.empty()) {
      const int64_t number = first / batch_size_;
      const auto skip = static_cast<size_t>(first % batch_size_);
      batches_->read(number, batch);
      const bool is_last = number + 1 == batches_->size();
      if (!is_last && static_cast<int64_t>(batch.size()) != batch_size_) {
        mixed_sizes(number, batch.size());
      }
      const size_t count = std::min(indices.size(), batch.size() - skip);
      std::copy_n(batch.begin() + static_cast<std::ptrdiff_t>(skip), count, indices.begin());
      indices = indices.subspan(count);
      first += static_cast<int64_t>(count);
    }
  }

 private:
  [[noreturn]] void mixed_sizes(int64_t number, size_t size) const {
    throw DataError({.what = "batch " + std::to_string(number) + " of the batch sampler has " +
                             std::to_string(size) + " samples, it promised batches of " +
                             std::to_string(batch_size_),
                     .hint = "let its batch_size() return nothing if sizes vary: ranks are then "
                             "dealt whole batches"});
  }

  std::shared_ptr<const BatchOrder> batches_;
  int64_t batch_size_;
  int64_t size_ = 0;
};

std::shared_ptr<const BatchOrder> batch_order(const PassSpec& spec) {
  auto order = spec.options.batch_sampler->order(spec.samples, spec.seed, spec.epoch);
  if (!order) throw DataError({.what = "the batch sampler gave no order"});
  return order;
}

std::shared_ptr<const SampleOrder> sample_order(const PassSpec& spec) {
  if (spec.options.batch_sampler) {
    return std::make_shared<SamplesOfBatches>(batch_order(spec), batch_size_of(spec.options));
  }
  const Sampler& sampler = sampler_for(spec.options);
  auto order = sampler.order(spec.samples, spec.seed, spec.epoch);
  if (!order) throw DataError({.what = "the sampler gave no order"});
  const int64_t promised = sampler.size(spec.samples);
  if (order->size() != promised) {
    throw DataError({.what = "the order of the sampler has " + std::to_string(order->size()) +
                             " positions, its size() says " + std::to_string(promised)});
  }
  return order;
}

// Throws DataError unless a dataset of `samples` samples has all `indices`.
void check_sampled(std::span<const int64_t> indices, int64_t samples) {
  for (const int64_t index : indices) {
    if (index >= 0 && index < samples) continue;
    throw DataError({.what = "the sampler gave the index " + std::to_string(index) +
                             ", the dataset has " + std::to_string(samples) + " samples",
                     .hint = "make the sampler for the size of this dataset"});
  }
}

// `count` places more at the end of `indices`. Samplers count in int64_t, datasets in size_t: both
// may look at the same memory.
std::span<int64_t> grown_by(std::vector<size_t>& indices, int64_t count) {
  static_assert(std::is_same_v<std::make_signed_t<size_t>, int64_t>);
  const size_t before = indices.size();
  indices.resize(before + static_cast<size_t>(count));
  return {reinterpret_cast<int64_t*>(indices.data() + before), static_cast<size_t>(count)};
}

// Positions of an order, from n on those of its beginning again.
class WrappedOrder {
 public:
  WrappedOrder(std::shared_ptr<const SampleOrder> order, int64_t samples)
      : order_(std::move(order)), samples_(samples) {}
  int64_t size() const { return order_->size(); }
  void append(int64_t first, int64_t count, std::vector<size_t>& to) const {
    std::span<int64_t> places = grown_by(to, count);
    while (!places.empty()) {
      first %= size();
      const auto run =
          static_cast<size_t>(std::min(static_cast<int64_t>(places.size()), size() - first));
      order_->read(first, places.first(run));
      check_sampled(places.first(run), samples_);
      places = places.subspan(run);
      first += static_cast<int64_t>(run);
    }
  }

 private:
  std::shared_ptr<const SampleOrder> order_;
  int64_t samples_;
};

// Samples dealt to the ranks by BatchShard.
class DealtSamples final : public PassPlan {
 public:
  explicit DealtSamples(const PassSpec& spec)
      : order_(sample_order(spec), spec.samples),
        shard_(shard_options(spec, order_.size())),
        epoch_(spec.epoch),
        first_index_(std::min(spec.start, order_.size()) / shard_.stride()) {}

  int64_t rounds() const override { return shard_.rounds(); }
  void read(int64_t k, PlannedBatch& batch) const override {
    const BatchShard::Round round = shard_.round(k);
    batch.info = {.epoch = epoch_,
                  .index = first_index_ + k,
                  .is_last = k + 1 == shard_.rounds(),
                  .size = round.size,
                  .valid = round.valid};
    batch.position = shard_.used_after(k);
    batch.indices.clear();
    order_.append(round.first, round.size, batch.indices);
  }

 private:
  WrappedOrder order_;
  BatchShard shard_;
  int64_t epoch_;
  int64_t first_index_;
};

int64_t rounded_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Samples read by rank 0 for all ranks. A round that does not divide is filled up with the first
// samples of the pass.
class DispatchedSamples final : public PassPlan {
 public:
  explicit DispatchedSamples(const PassSpec& spec)
      : order_(sample_order(spec), spec.samples),
        rounds_(dispatch_options(spec, order_.size())),
        world_size_(spec.shard.world_size),
        epoch_(spec.epoch),
        first_index_(std::min(spec.start, order_.size()) / rounds_.stride()) {}

  int64_t rounds() const override { return rounds_.rounds(); }
  void read(int64_t k, PlannedBatch& batch) const override {
    const BatchShard::Round round = rounds_.round(k);
    batch.info = {.epoch = epoch_,
                  .index = first_index_ + k,
                  .is_last = k + 1 == rounds_.rounds(),
                  .size = rounded_up(round.size, world_size_),
                  .valid = round.size};
    batch.position = rounds_.used_after(k);
    batch.indices.clear();
    order_.append(round.first, round.size, batch.indices);
    order_.append(0, batch.info.size - round.size, batch.indices);
  }

 private:
  WrappedOrder order_;
  BatchShard rounds_;
  int64_t world_size_;
  int64_t epoch_;
  int64_t first_index_;
};

// Batches of varying size, read one after the other.
class VaryingBatches {
 public:
  explicit VaryingBatches(const PassSpec& spec)
      : order_(batch_order(spec)), samples_(spec.samples) {}
  int64_t size() const { return order_->size(); }
  void append(int64_t number, std::vector<size_t>& to) const {
    std::vector<int64_t> batch;
    order_->read(number, batch);
    if (batch.empty()) {
      throw DataError({.what = "batch " + std::to_string(number) + " of the batch sampler is empty",
                       .hint = "leave empty batches out"});
    }
    check_sampled(batch, samples_);
    to.insert(to.end(), batch.begin(), batch.end());
  }

 private:
  std::shared_ptr<const BatchOrder> order_;
  int64_t samples_;
};

// Whole batches dealt to the ranks like cards. BatchShard deals them as if each were a sample.
BatchShardOptions whole_batches(const PassSpec& spec, int64_t size) {
  BatchShardOptions options = shard_options(spec, size);
  options.batch_size = 1;
  if (options.split_batches && options.world_size > 1) {
    throw UsageError({.what = "split_batches needs batches of one size, those of this batch "
                              "sampler vary",
                      .hint = "leave split_batches off, or let batch_size() of the batch sampler "
                              "return their size"});
  }
  options.split_batches = false;
  return options;
}

class DealtBatches final : public PassPlan {
 public:
  explicit DealtBatches(const PassSpec& spec)
      : batches_(spec),
        shard_(whole_batches(spec, batches_.size())),
        epoch_(spec.epoch),
        first_index_(std::min(spec.start, batches_.size()) / shard_.stride()) {}

  int64_t rounds() const override { return shard_.rounds(); }
  void read(int64_t k, PlannedBatch& batch) const override {
    const BatchShard::Round round = shard_.round(k);
    batch.indices.clear();
    batches_.append(shard_.wrapped(round.first), batch.indices);
    const auto size = static_cast<int64_t>(batch.indices.size());
    batch.info = {.epoch = epoch_,
                  .index = first_index_ + k,
                  .is_last = k + 1 == shard_.rounds(),
                  .size = size,
                  .valid = round.valid > 0 ? size : 0};
    batch.position = shard_.used_after(k);
  }

 private:
  VaryingBatches batches_;
  BatchShard shard_;
  int64_t epoch_;
  int64_t first_index_;
};

// As many batches as there are ranks (one with split_batches) read by rank 0 as one.
BatchShardOptions batches_a_round(const PassSpec& spec, int64_t size) {
  BatchShardOptions options = shard_options(spec, size);
  options.batch_size = options.split_batches ? 1 : options.world_size;
  options.split_batches = false;
  options.even_batches = false;
  options.world_size = 1;
  options.rank = 0;
  return options;
}

class DispatchedBatches final : public PassPlan {
 public:
  explicit DispatchedBatches(const PassSpec& spec)
      : batches_(spec),
        rounds_(batches_a_round(spec, batches_.size())),
        world_size_(spec.shard.world_size),
        epoch_(spec.epoch),
        first_index_(std::min(spec.start, batches_.size()) / rounds_.stride()) {
    const int64_t count = std::min(batches_.size(), rounds_.stride());
    for (int64_t number = 0; number < count; ++number) batches_.append(number, filling_);
    filling_.resize(std::min(filling_.size(), static_cast<size_t>(world_size_)));
  }

  int64_t rounds() const override { return rounds_.rounds(); }
  void read(int64_t k, PlannedBatch& batch) const override {
    const BatchShard::Round round = rounds_.round(k);
    batch.indices.clear();
    for (int64_t i = 0; i < round.size; ++i) batches_.append(round.first + i, batch.indices);
    const auto valid = static_cast<int64_t>(batch.indices.size());
    const int64_t size = rounded_up(valid, world_size_);
    for (int64_t i = 0; i < size - valid; ++i) {
      batch.indices.push_back(filling_[static_cast<size_t>(i) % filling_.size()]);
    }
    batch.info = {.epoch = epoch_,
                  .index = first_index_ + k,
                  .is_last = k + 1 == rounds_.rounds(),
                  .size = size,
                  .valid = valid};
    batch.position = rounds_.used_after(k);
  }

 private:
  VaryingBatches batches_;
  BatchShard rounds_;
  int64_t world_size_;
  int64_t epoch_;
  int64_t first_index_;
  std::vector<size_t> filling_;
};

// How the rounds of `spec` are counted, without its order.
BatchShard counted(const PassSpec& spec) {
  const int64_t size = planned_size(spec);
  if (samples_are_dealt(spec.options)) {
    return BatchShard(spec.shard.dispatch ? dispatch_options(spec, size)
                                          : shard_options(spec, size));
  }
  return BatchShard(spec.shard.dispatch ? batches_a_round(spec, size) : whole_batches(spec, size));
}

}  // namespace

bool counts_batches(const LoaderOptions& options) {
  return options.batch_sampler != nullptr && !options.batch_sampler->batch_size().has_value();
}

std::shared_ptr<const PassPlan> make_plan(const PassSpec& spec) {
  if (samples_are_dealt(spec.options)) {
    if (spec.shard.dispatch) return std::make_shared<DispatchedSamples>(spec);
    return std::make_shared<DealtSamples>(spec);
  }
  if (spec.shard.dispatch) return std::make_shared<DispatchedBatches>(spec);
  return std::make_shared<DealtBatches>(spec);
}

int64_t planned_size(const PassSpec& spec) {
  if (counts_batches(spec.options)) return batch_order(spec)->size();
  if (spec.options.batch_sampler) return sample_order(spec)->size();
  return sampler_for(spec.options).size(spec.samples);
}

int64_t planned_rounds(const PassSpec& spec) { return counted(spec).rounds(); }

int64_t planned_position(const PassSpec& spec, int64_t batches) {
  const int64_t size = planned_size(spec);
  const int64_t start = std::min(spec.start, size);
  if (batches <= 0) return start;
  const BatchShard shard = counted(spec);
  if (batches > (size - start) / shard.stride()) return size;
  return shard.used_after(batches - 1);
}

}  // namespace accelerate::detail
