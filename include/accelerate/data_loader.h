// A loader: reads a dataset or a stream in batches, shuffled by seed and epoch, shared out over the
// ranks, ahead of the loop where it has workers, and continues where it was interrupted.
//
//   auto batches = accelerate::data_loader(dataset, {.batch_size = 64, .shuffle = true});
//   for (auto& batch : batches) use(batch.data, batch.target, batch.info().valid);
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <ranges>
#include <type_traits>
#include <typeinfo>
#include <utility>

#include "accelerate/detail/dataset_access.h"
#include "accelerate/detail/dispatch_feed.h"
#include "accelerate/detail/feed.h"
#include "accelerate/detail/fetch.h"
#include "accelerate/detail/loader_control.h"
#include "accelerate/detail/loader_pass.h"
#include "accelerate/detail/loader_source.h"
#include "accelerate/detail/placing_feed.h"
#include "accelerate/detail/sample_digest.h"
#include "accelerate/detail/torch_loader.h"
#include "accelerate/detail/worker_feed.h"
#include "accelerate/loader_iterator.h"
#include "accelerate/loader_options.h"
#include "accelerate/nested.h"

namespace accelerate {

// Iterates over `Source` in batches:
//   a dataset        any type with size(), an integer or a std::optional of one, and
//                      get(size_t)                  one sample, or
//                      get(size_t, at::Generator&)  one sample that needs random numbers: the
//                                                   generator is seeded by seed, epoch and index,
//                                                   or
//                      get_batch(ArrayRef<size_t>)  preferred where it exists: a std::vector of
//                                                   samples, or the batch as a whole;
//                    datasets of torch::data are such types; a std::vector is one of its elements
//   a Stream         see stream.h: samples one after the other
//   a BatchStream    batches of another library's loader
// `Collate` turns samples into a batch; it is a function of a std::vector of samples; the default
// one takes tensors, numbers, strings and what is built of them (see nested.h).
//
// The order of a pass is a pure function of (seed, epoch); see samplers.h. Every begin() starts a
// pass of its own that owns its state, so loops over one loader may be nested or left at any point.
// A pass that reaches its end raises epoch().
//
// A DataLoader is a handle: copies are cheap and share the data and the position; so does a
// moved-from one. Handles may be used from several threads if the dataset may be; one
// iterator belongs to one thread. An exception ends its pass and is thrown by begin() or ++ in the
// place of its batch: one of a dataset or a stream as a DataError that names the sample, with the
// exception nested in it; those of samplers and collate functions unchanged.
template <class Source, class Collate = detail::DefaultCollate>
class DataLoader {
  using Traits = detail::SourceTraits<Source, Collate>;
  using Maker = typename Traits::Maker;

 public:
  using Value = typename Maker::Value;
  using Iterator = LoaderIterator<Value>;

  // Throws UsageError if there is no source or the options contradict each other.
  DataLoader(std::shared_ptr<Source> source, LoaderOptions options, Collate collate = {})
      : source_(std::move(source)),
        collate_(std::make_shared<const Collate>(std::move(collate))),
        control_(std::make_shared<detail::LoaderControl>()) {
    settings_.options = std::move(options);
    detail::check_dataset(source_.get());
    settings_.kind = kind_of(*source_);
    detail::check_options(settings_.options, settings_.kind);
  }
  DataLoader(const DataLoader&) = default;
  DataLoader& operator=(const DataLoader&) = default;

  // Starts a pass and loads its first batch. After loading an interrupted pass, or skipping
  // batches, it continues there. Collective for a loader that dispatches or synchronises
  // generators, and so is ++ of one that dispatches.
  Iterator begin() const {
    detail::synchronise_generators(settings_, *control_);
    const LoaderShard shard = settings_.shard.value_or(LoaderShard{});
    return Iterator(control_, shard.rank, shard.world_size,
                    [this](detail::LoaderControl::Place& place) { return start_pass(place); });
  }
  std::default_sentinel_t end() const { return {}; }

  // Batches that this rank gets in the next pass. Throws DataError for a stream of unknown length.
  int64_t size() const { return detail::rounds_of(settings_, next_pass(), source_size()); }

  std::optional<int64_t> size_if_known() const {
    if (!source_size()) return std::nullopt;
    return size();
  }

  Source& dataset() const { return *source_; }
  const LoaderOptions& options() const { return settings_.options; }

  // The number of the next pass to begin; all handles of this loader see it. Setting a different
  // one forgets the position of an interrupted pass.
  int64_t epoch() const { return control_->epoch(); }
  void set_epoch(int64_t epoch) { control_->set_epoch(epoch); }

  // The position of the innermost loop over this loader: after the batch it got last. After a
  // loop was left early it stays there until the next one begins.
  LoaderState state_dict() const { return detail::state_of(settings_, *control_, source_size()); }
  // The next pass continues there, on any number of ranks, with exactly the samples that were
  // not used up; a dataset is not asked for the others, a stream is read past them. All handles of
  // this loader see it. All ranks must load the same state. Throws DataError, and changes nothing,
  // if it is the state of other data.
  void load_state_dict(const LoaderState& state) {
    detail::load_state(settings_, *control_, source_size(), state);
  }

  // A handle that leaves out the first `batches` batches of this rank in the current epoch, but
  // not in later ones; if a loaded state is further on, it continues there. Shares
  // everything else, the epoch too.
  DataLoader skip_first_batches(int64_t batches) const {
    detail::check_skipped(batches);
    DataLoader result = *this;
    result.settings_.skipped = {.epoch = epoch(), .batches = batches};
    return result;
  }

  // How rank 0 cuts a batch for the ranks when it reads for all of them (dispatch_batches): a
  // function (const Value&, const DispatchSlice&) -> Value. Without it every tensor is cut along
  // its first dimension, which must be one row per sample. The rows in info() count samples,
  // whatever the function returns. Set it before the loader is prepared.
  DataLoader& slice_fn_for_dispatch(detail::SliceFunction<Value> slice) {
    slice_ = std::move(slice);
    return *this;
  }

  bool is_sharded() const { return settings_.shard.has_value(); }
  const std::optional<LoaderShard>& shard() const { return settings_.shard; }

  // The loader of one rank: its share of every pass, on its device. Shares the data with this one;
  // it starts at the position of this one and then counts on its own. All ranks must give the same
  // values but for `rank` and `device`. A single process keeps a short last batch as it is: there
  // is no other rank to match. With `dispatch` only rank 0 reads the data. Throws UsageError if
  // this loader is already sharded or the values contradict each other.
  DataLoader sharded(const LoaderShard& shard) const {
    detail::check_shard(settings_.options, shard, settings_.kind, is_sharded());
    if constexpr (!Nested<Value>) detail::refuse_to_dispatch(shard, typeid(Value));
    DataLoader result = *this;
    result.settings_.shard = shard;
    if (!result.receives() || !shard.dispatched_size) {
      result.settings_.prepared_size = source_size();
    } else if (*shard.dispatched_size >= 0) {
      result.settings_.prepared_size = shard.dispatched_size;
    }
    result.control_ = std::make_shared<detail::LoaderControl>();
    LoaderState state = detail::state_of(settings_, *control_, result.settings_.prepared_size);
    state.seed = shard.seed;
    result.load_state_dict(state);
    return result;
  }

  // What load_state_dict() throws for that state; changes nothing.
  void check_state_dict(const LoaderState& state) const {
    detail::check_state(settings_, source_size(), state);
  }

  // Internal: how an accelerator compares the samples of the ranks. Unset for streams,
  // which can be read only once.
  std::optional<detail::SampleDigest> sample_digest() const {
    if constexpr (Traits::kKind == detail::SourceKind::kDataset) {
      return detail::sample_digest(source_);
    } else if constexpr (detail::is_torch_source<Source>) {
      return source_->digest();
    } else {
      return std::nullopt;
    }
  }
  // Internal: whether another library makes the batches.
  bool is_batch_stream() const { return settings_.kind == detail::SourceKind::kBatchStream; }
  // Internal: how an accelerator follows the loader.
  const std::shared_ptr<detail::LoaderControl>& control() const { return control_; }
  // Finds this handle again for as long as one like it lives.
  std::function<std::optional<DataLoader>()> weak_handle() const {
    return [source = std::weak_ptr(source_), collate = std::weak_ptr(collate_),
            control = std::weak_ptr(control_), settings = settings_,
            slice = slice_]() -> std::optional<DataLoader> {
      DataLoader loader(source.lock(), collate.lock(), settings, control.lock(), slice);
      if (!loader.source_ || !loader.collate_ || !loader.control_) return std::nullopt;
      return loader;
    };
  }

 private:
  static detail::SourceKind kind_of([[maybe_unused]] const Source& source) {
    if constexpr (detail::is_torch_source<Source>) {
      return source.kind();
    } else {
      return Traits::kKind;
    }
  }

  DataLoader(std::shared_ptr<Source> source, std::shared_ptr<const Collate> collate,
             detail::LoaderSettings settings, std::shared_ptr<detail::LoaderControl> control,
             detail::SliceFunction<Value> slice)
      : source_(std::move(source)),
        collate_(std::move(collate)),
        settings_(std::move(settings)),
        control_(std::move(control)),
        slice_(std::move(slice)) {}

  // Whether rank 0 reads for all ranks, and whether this one receives its batches.
  bool dispatches() const {
    return settings_.shard && settings_.shard->dispatch && settings_.shard->world_size > 1;
  }
  bool receives() const { return dispatches() && settings_.shard->rank != 0; }

  // A rank that receives its batches does not read its own data.
  std::optional<int64_t> source_size() const {
    if (receives()) return settings_.prepared_size;
    if constexpr (Traits::kKind == detail::SourceKind::kDataset) {
      return static_cast<int64_t>(dataset_detail::size_of(*source_));
    } else {
      return source_->size();
    }
  }

  detail::PassSpec next_pass() const {
    return detail::next_pass(settings_, *control_, source_size());
  }

  std::unique_ptr<detail::Feed<Value>> read(const detail::PassSpec& spec) const {
    return detail::start_feed(pinning_maker(spec), spec.options);
  }

  detail::PinningMaker<Maker> pinning_maker(const detail::PassSpec& spec) const {
    return {Maker(source_, collate_, spec), detail::pins_memory(spec.options, spec.shard)};
  }

  std::unique_ptr<detail::Feed<Value>> dispatch(const detail::PassSpec& spec) const {
    const LoaderShard& shard = spec.shard;
    detail::DispatchChannel channel(shard.communicator);
    if (shard.rank != 0) {
      return std::make_unique<detail::ReceivingFeed<Value>>(std::move(channel), shard.rank,
                                                            shard.world_size);
    }
    detail::DispatchMaker maker(pinning_maker(spec), shard.world_size, slice_);
    return std::make_unique<detail::DispatchingFeed<Value>>(
        detail::start_feed(std::move(maker), spec.options), std::move(channel), shard.world_size);
  }

  std::unique_ptr<detail::Feed<Value>> feed(const detail::PassSpec& spec) const {
    std::unique_ptr<detail::Feed<Value>> feed;
    if constexpr (Nested<Value>) {
      feed = spec.shard.dispatch ? dispatch(spec) : read(spec);
      if (!settings_.shard || !spec.shard.place_on_device) return feed;
      const c10::Device device = spec.shard.device;
      if (spec.shard.non_blocking && detail::has_copy_stream(device)) {
        return std::make_unique<detail::AheadPlacingFeed<Value>>(std::move(feed), device);
      }
      return std::make_unique<detail::PlacingFeed<Value>>(std::move(feed), device);
    } else {
      return read(spec);
    }
  }

  // Where rank 0 reads for all, the others wait for its first batch: they are told if it cannot
  // even begin.
  std::unique_ptr<detail::Feed<Value>> start_pass(detail::LoaderControl::Place& place) const {
    const auto start = [&] {
      const detail::PassSpec spec = next_pass();
      place = {.epoch = spec.epoch, .position = spec.start, .seed = spec.seed};
      return feed(spec);
    };
    if (!dispatches() || receives()) return start();
    try {
      return start();
    } catch (const std::exception& error) {
      detail::DispatchChannel(settings_.shard->communicator).send_failure(error.what());
      throw;
    } catch (...) {
      detail::DispatchChannel(settings_.shard->communicator)
          .send_failure("an exception that is not a std::exception");
      throw;
    }
  }

  std::shared_ptr<Source> source_;
  std::shared_ptr<const Collate> collate_;
  detail::LoaderSettings settings_;
  std::shared_ptr<detail::LoaderControl> control_;
  detail::SliceFunction<Value> slice_;
};

// Makes a loader of a dataset or a stream, which is moved or copied in; give a std::shared_ptr to
// share it. Any other range is read as a stream.
template <class Given>
auto data_loader(Given&& given, LoaderOptions options = {}) {
  using Source = detail::SourceOf<Given>;
  return DataLoader<Source>(std::make_shared<Source>(detail::to_source(std::forward<Given>(given))),
                            std::move(options));
}
template <class Dataset>
auto data_loader(std::shared_ptr<Dataset> dataset, LoaderOptions options = {}) {
  return DataLoader<Dataset>(std::move(dataset), std::move(options));
}

// The same with a collate function of the user: takes a std::vector of samples and returns the
// batch, any class (see nested.h for what can be moved to a device and dispatched). Workers call it
// concurrently.
template <class Given, class Collate>
auto data_loader(Given&& given, LoaderOptions options, Collate collate) {
  using Source = detail::SourceOf<Given>;
  return DataLoader<Source, Collate>(
      std::make_shared<Source>(detail::to_source(std::forward<Given>(given))), std::move(options),
      std::move(collate));
}
template <class Dataset, class Collate>
auto data_loader(std::shared_ptr<Dataset> dataset, LoaderOptions options, Collate collate) {
  return DataLoader<Dataset, Collate>(std::move(dataset), std::move(options), std::move(collate));
}

// DataLoader::skip_first_batches() as a function.
template <class Source, class Collate>
auto skip_first_batches(const DataLoader<Source, Collate>& loader, int64_t batches) {
  return loader.skip_first_batches(batches);
}

}  // namespace accelerate
