// A loader over a map-style dataset: shuffled by seed and epoch, sharded over ranks.
//
//   auto batches = accelerate::data_loader(dataset, {.batch_size = 64, .shuffle = true});
//   for (auto& batch : batches) use(batch.data, batch.target, batch.info().valid);
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include "accelerate/batch.h"
#include "accelerate/detail/collate.h"
#include "accelerate/detail/loader_pass.h"
#include "accelerate/loader_options.h"

namespace accelerate {

// Iterates a dataset in batches. A dataset is any type with
//   size()              an integer or a std::optional of one (torch's datasets), and
//   get(size_t)         one sample, or
//   get_batch(indices)  preferred where it exists: a std::vector of samples, or the batch as a
//                       whole (a dataset mapped with torch's Stack transform, TensorDataset)
// A sample is a torch::data::Example of tensors, with or without target, an accelerate::Sample or
// a plain tensor. Samples are stacked along a new first dimension.
//
// The order of a pass is a pure function of (seed, epoch): torch's randperm of a CPU generator
// seeded with seed + epoch. Every begin() starts a pass of its own that owns its state, so loops
// over one loader may be nested or left at any point. A pass that reaches its end raises epoch().
//
// A DataLoader is a handle: copies are cheap and share the dataset and the epoch. Handles may be
// used from several threads if the dataset may be; one iterator belongs to one thread.
template <class Dataset>
class DataLoader {
 public:
  using Value = detail::BatchValue<Dataset>;
  class Iterator;

  // Throws UsageError if there is no dataset or batch_size is not positive.
  DataLoader(std::shared_ptr<Dataset> dataset, LoaderOptions options)
      : dataset_(std::move(dataset)),
        options_(options),
        epoch_(std::make_shared<std::atomic<int64_t>>(0)) {
    detail::check_dataset(dataset_.get());
    detail::check_options(options_);
  }

  // Starts a pass and loads its first batch. Throws what the dataset throws, and DataError for a
  // dataset without a size, a batch of another size than asked for, or samples that cannot be
  // stacked.
  Iterator begin() const { return Iterator(dataset_, pass_options(), epoch_); }
  std::default_sentinel_t end() const { return {}; }

  // Batches that this rank gets in one pass.
  int64_t size() const { return detail::LoaderPass::rounds(pass_options()); }

  Dataset& dataset() const { return *dataset_; }
  const LoaderOptions& options() const { return options_; }

  // The number of the next pass to begin; all handles of this loader see it.
  int64_t epoch() const { return epoch_->load(); }
  void set_epoch(int64_t epoch) { epoch_->store(epoch); }

  bool is_sharded() const { return shard_.has_value(); }
  const std::optional<LoaderShard>& shard() const { return shard_; }

  // The loader of one rank: its share of every pass, on its device. Shares the dataset with this
  // one; its epoch starts where this one stands and then counts for itself. All ranks must give
  // the same values but for `rank` and `device`. A single process keeps a short last batch as it
  // is: there is nobody to be even with.
  // Throws UsageError if this loader is sharded already or BatchShard refuses the values.
  DataLoader sharded(const LoaderShard& shard) const {
    detail::check_shard(options_, shard, is_sharded());
    DataLoader result(dataset_, options_);
    result.shard_ = shard;
    result.set_epoch(epoch());
    return result;
  }

 private:
  detail::PassOptions pass_options() const {
    return {.n = detail::size_of(*dataset_), .epoch = epoch(), .loader = options_, .shard = shard_};
  }

  std::shared_ptr<Dataset> dataset_;
  LoaderOptions options_;
  std::optional<LoaderShard> shard_;
  std::shared_ptr<std::atomic<int64_t>> epoch_;
};

// Move-only input iterator. Keeps the dataset alive; the loader itself may go away.
template <class Dataset>
class DataLoader<Dataset>::Iterator {
 public:
  using iterator_concept = std::input_iterator_tag;
  using value_type = Batch<Value>;
  using difference_type = std::ptrdiff_t;

  Batch<Value>& operator*() const { return *batch_; }
  Batch<Value>* operator->() const { return batch_.get(); }

  Iterator& operator++() {
    pass_.advance();
    load();
    return *this;
  }
  void operator++(int) { ++*this; }

  bool operator==(std::default_sentinel_t) const { return pass_.done(); }

 private:
  friend class DataLoader;

  Iterator(std::shared_ptr<Dataset> dataset, detail::PassOptions options,
           std::shared_ptr<std::atomic<int64_t>> epoch)
      : dataset_(std::move(dataset)),
        epoch_(std::move(epoch)),
        pass_(std::move(options)),
        batch_(std::make_unique<Batch<Value>>()) {
    load();
  }

  void load() {
    if (pass_.done()) {
      epoch_->fetch_add(1);
      return;
    }
    Value value = detail::fetch(*dataset_, pass_.indices());
    detail::SampleKind<Value>::for_each_tensor(
        value, [this](at::Tensor& tensor) { tensor = pass_.place(tensor); });
    *batch_ = Batch<Value>(std::move(value), pass_.info());
  }

  std::shared_ptr<Dataset> dataset_;
  std::shared_ptr<std::atomic<int64_t>> epoch_;
  detail::LoaderPass pass_;
  std::unique_ptr<Batch<Value>> batch_;
};

// Makes a loader of `dataset`, which is moved or copied in; give a std::shared_ptr to share it.
template <class Dataset>
auto data_loader(Dataset&& dataset, LoaderOptions options = {}) {
  using Owned = std::remove_cvref_t<Dataset>;
  return DataLoader<Owned>(std::make_shared<Owned>(std::forward<Dataset>(dataset)), options);
}

template <class Dataset>
auto data_loader(std::shared_ptr<Dataset> dataset, LoaderOptions options = {}) {
  return DataLoader<Dataset>(std::move(dataset), options);
}

}  // namespace accelerate
