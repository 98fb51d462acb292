// Loaders of torch::data as sources of ours. Internal: users do not call it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "accelerate/detail/batch_stream_maker.h"
#include "accelerate/detail/loader_pass.h"
#include "accelerate/detail/loader_source.h"
#include "accelerate/detail/map_maker.h"
#include "accelerate/detail/sample_digest.h"
#include "accelerate/errors.h"
#include "accelerate/export.h"
#include "accelerate/loader_options.h"
#include "accelerate/stream.h"

namespace torch::data {
template <typename Dataset, typename Batch, typename BatchRequest>
class DataLoaderBase;
template <typename Dataset, typename Sampler>
class StatelessDataLoader;
}  // namespace torch::data
namespace torch::data::samplers {
class RandomSampler;
class SequentialSampler;
template <typename BatchRequest>
class DistributedSampler;
}  // namespace torch::data::samplers

namespace accelerate::detail {

// Throws UsageError: a loop over a loader of torch::data goes on after another one was begun.
[[noreturn]] ACCELERATE_EXPORT void throw_overtaken_pass();

// Opens passes over a loader of torch::data. One pass at a time: torch's loader has one place.
template <class Loader>
class TorchLoaderPasses {
 public:
  using Batch = typename Loader::BatchType;

  explicit TorchLoaderPasses(std::shared_ptr<Loader> loader)
      : state_(new State{std::move(loader)}) {}

  std::function<std::optional<Batch>()> operator()(int64_t) const {
    finish_the_pass_before();
    state_->at.emplace(state_->loader->begin());
    return
        [state = state_, pass = ++state_->passes, fresh = true]() mutable -> std::optional<Batch> {
          if (pass != state->passes) throw_overtaken_pass();
          if (!std::exchange(fresh, false)) ++*state->at;
          if (*state->at == state->loader->end()) {
            state->at.reset();
            return std::nullopt;
          }
          return std::move(**state->at);
        };
  }

 private:
  struct State {
    std::shared_ptr<Loader> loader;
    int64_t passes = 0;
    std::optional<std::decay_t<decltype(std::declval<Loader&>().begin())>> at{};
  };

  // torch's loader cannot start again before its batches have all been taken.
  void finish_the_pass_before() const {
    if (!state_->at) return;
    while (*state_->at != state_->loader->end()) ++*state_->at;
    state_->at.reset();
  }

  std::shared_ptr<State> state_;
};

template <class Loader>
auto batches_of_torch(std::shared_ptr<Loader> loader) {
  using Batch = typename Loader::BatchType;
  return BatchStream<Batch>(TorchLoaderPasses<Loader>(std::move(loader)));
}

// What make_data_loader() returns for a dataset that is read by index, in an order that ours is
// too.
template <class Loader>
struct IndexedTorchLoader : std::false_type {};
template <class Data, class Sampler>
requires(
    std::is_same_v<Sampler, torch::data::samplers::RandomSampler> ||
    std::is_same_v<
        Sampler,
        torch::data::samplers::
            SequentialSampler>) struct IndexedTorchLoader<torch::data::StatelessDataLoader<Data,
                                                                                           Sampler>>
    : std::true_type {
  using Dataset = Data;
  static constexpr bool kShuffles = std::is_same_v<Sampler, torch::data::samplers::RandomSampler>;
};

template <class Request>
std::true_type is_distributed_sampler(const torch::data::samplers::DistributedSampler<Request>*);
std::false_type is_distributed_sampler(const void*);
// Whether the sampler gives each rank its share itself.
template <class Loader>
inline constexpr bool kShardsItself = false;
template <class Data, class Sampler>
inline constexpr bool kShardsItself<torch::data::StatelessDataLoader<Data, Sampler>> =
    decltype(is_distributed_sampler(static_cast<Sampler*>(nullptr)))::value;

// What a loader keeps where only subclasses may name it; a pointer to such a member then works on
// any loader.
template <class Base>
struct TorchLoaderMembers : Base {
  using Request = typename Base::BatchRequestType;

  static auto& dataset(Base& loader) { return loader.*(&TorchLoaderMembers::main_thread_dataset_); }
  // Whether no batches have been taken from it.
  static bool fresh(Base& loader) { return loader.*(&TorchLoaderMembers::sequence_number_) == 0; }
  // The next indices of its sampler.
  static std::optional<Request> next_request(Base& loader) {
    return (loader.*(&TorchLoaderMembers::get_batch_request))();
  }
  // Forgets what its threads were told and have not delivered.
  static void drain(Base& loader) {
    (loader.*(&TorchLoaderMembers::shuttle_)).drain();
    loader.*(&TorchLoaderMembers::sequence_number_) = 0;
    loader.*(&TorchLoaderMembers::sequencer_) = (loader.*(&TorchLoaderMembers::new_sequencer))();
  }
  // Tells its threads to read a batch, and takes the next of those that they were told to read.
  static void push(Base& loader, Request indices) {
    void (Base::*push_job)(Request) = &TorchLoaderMembers::template push_job<Request>;
    (loader.*push_job)(std::move(indices));
  }
  static typename Base::BatchType pop(Base& loader) {
    auto result = (loader.*(&TorchLoaderMembers::pop_result))();
    if (result->exception) std::rethrow_exception(result->exception);
    return std::move(*result->batch);
  }
};
template <class Dataset, class Batch, class Request>
auto torch_loader_members(const torch::data::DataLoaderBase<Dataset, Batch, Request>*)
    -> TorchLoaderMembers<torch::data::DataLoaderBase<Dataset, Batch, Request>>;
template <class Loader>
using MembersOf = decltype(torch_loader_members(static_cast<Loader*>(nullptr)));

// The threads of a loader, each of which has a copy of the dataset, at work on batches that we
// choose. One pass at a time, one thread at a time.
template <class Loader>
class TorchThreads {
 public:
  using Members = MembersOf<Loader>;

  // Null where the loader does not tell how many samples there are, or not in which order its
  // batches come. The sampler knows the size: it is asked once for all its indices, which are
  // discarded.
  static std::shared_ptr<TorchThreads> of(const std::shared_ptr<Loader>& loader) {
    const auto& options = loader->options();
    const bool hides_samples = options.drop_last && IndexedTorchLoader<Loader>::kShuffles;
    if (hides_samples || !options.enforce_ordering || options.max_jobs == 0) return nullptr;
    if (!Members::fresh(*loader)) return nullptr;
    int64_t size = 0;
    while (const auto request = Members::next_request(*loader)) {
      size += static_cast<int64_t>(request->size());
    }
    if (size == 0) return nullptr;
    return std::shared_ptr<TorchThreads>(new TorchThreads(loader, size));
  }

  int64_t size() const { return size_; }
  int64_t max_jobs() const { return static_cast<int64_t>(loader_->options().max_jobs); }

  // Ends the pass before; returns the number of the new one.
  int64_t begin_pass() {
    Members::drain(*loader_);
    return ++passes_;
  }
  void push(int64_t pass, std::vector<size_t> indices) {
    if (pass != passes_) throw_overtaken_pass();
    Members::push(*loader_, std::move(indices));
  }
  auto pop(int64_t pass) {
    if (pass != passes_) throw_overtaken_pass();
    return Members::pop(*loader_);
  }

 private:
  TorchThreads(std::shared_ptr<Loader> loader, int64_t size)
      : loader_(std::move(loader)), size_(size) {}

  std::shared_ptr<Loader> loader_;
  int64_t size_;
  int64_t passes_ = 0;
};

// Makes the batches of a pass with the threads of a loader: they are told as many batches ahead as
// they would be by the loader itself.
template <class Loader, class Collate>
class TorchThreadsMaker {
 public:
  using Value = decltype(adopt_batch(std::declval<typename Loader::BatchType>(),
                                     std::declval<const Collate&>()));
  using Draft = int64_t;  // the number of the batch

  TorchThreadsMaker(std::shared_ptr<TorchThreads<Loader>> threads,
                    std::shared_ptr<const Collate> collate, const PassSpec& spec)
      : threads_(std::move(threads)),
        collate_(std::move(collate)),
        plan_(make_plan(spec)),
        pass_(threads_->begin_pass()) {}

  bool draw(Draft& number) {
    if (drawn_ == plan_->rounds()) return false;
    for (; pushed_ < plan_->rounds() && pushed_ < drawn_ + threads_->max_jobs(); ++pushed_) {
      PlannedBatch planned;
      plan_->read(pushed_, planned);
      threads_->push(pass_, {planned.indices.begin(), planned.indices.end()});
    }
    number = drawn_++;
    return true;
  }

  Produced<Value> build(Draft number, const StopFlag&) const {
    PlannedBatch planned;
    plan_->read(number, planned);
    return {adopt_batch(read(planned), *collate_), planned.info, planned.position};
  }

 private:
  auto read(const PlannedBatch& planned) const {
    try {
      return threads_->pop(pass_);
    } catch (const UsageError&) {
      throw;
    } catch (...) {
      rethrow_for_samples(planned.indices);
    }
  }

  std::shared_ptr<TorchThreads<Loader>> threads_;
  std::shared_ptr<const Collate> collate_;
  std::shared_ptr<const PassPlan> plan_;
  int64_t pass_;
  int64_t drawn_ = 0;
  int64_t pushed_ = 0;
};

// A loader over data with random access: its dataset, or its threads, or its batches if neither
// can be asked for certain samples.
template <class Loader>
class TorchSource {
 public:
  using Dataset = typename IndexedTorchLoader<Loader>::Dataset;
  using Batch = typename Loader::BatchType;

  explicit TorchSource(std::shared_ptr<Loader> loader) : loader_(std::move(loader)) {
    auto& dataset = MembersOf<Loader>::dataset(*loader_);
    if (dataset && dataset->size()) {
      dataset_ = std::shared_ptr<Dataset>(loader_, dataset.get());
    } else if (!dataset) {
      threads_ = TorchThreads<Loader>::of(loader_);
    }
    if (!is_indexed()) batches_ = std::make_shared<BatchStream<Batch>>(batches_of_torch(loader_));
  }

  // One of them is not null.
  const std::shared_ptr<Dataset>& dataset() const { return dataset_; }
  const std::shared_ptr<TorchThreads<Loader>>& threads() const { return threads_; }
  const std::shared_ptr<BatchStream<Batch>>& batches() const { return batches_; }

  SourceKind kind() const { return is_indexed() ? SourceKind::kDataset : SourceKind::kBatchStream; }
  std::optional<int64_t> size() const {
    if (threads_) return threads_->size();
    if (!dataset_) return std::nullopt;
    return static_cast<int64_t>(dataset_detail::size_of(*dataset_));
  }
  LoaderOptions options() const {
    if (!is_indexed()) return {};
    return {.batch_size = static_cast<int64_t>(loader_->options().batch_size),
            .shuffle = IndexedTorchLoader<Loader>::kShuffles,
            .drop_last = loader_->options().drop_last};
  }
  std::optional<SampleDigest> digest() const {
    if (!is_indexed()) return std::nullopt;
    if (dataset_) return sample_digest(dataset_);
    if constexpr (Nested<Batch>) {
      return [threads = threads_](size_t index) {
        const int64_t pass = threads->begin_pass();
        threads->push(pass, {index});
        return digest_of(pack(threads->pop(pass)));
      };
    } else {
      return SampleDigest();
    }
  }

 private:
  bool is_indexed() const { return dataset_ != nullptr || threads_ != nullptr; }

  std::shared_ptr<Loader> loader_;
  std::shared_ptr<Dataset> dataset_;
  std::shared_ptr<TorchThreads<Loader>> threads_;
  std::shared_ptr<BatchStream<Batch>> batches_;
};

template <class T>
inline constexpr bool is_torch_source = false;
template <class Loader>
inline constexpr bool is_torch_source<TorchSource<Loader>> = true;

// Makes batches in the way that the source allows.
template <class Loader, class Collate>
class TorchMaker {
  using Indexed = MapMaker<typename TorchSource<Loader>::Dataset, Collate>;
  using Threaded = TorchThreadsMaker<Loader, Collate>;
  using Adopting = BatchStreamMaker<typename Loader::BatchType, Collate>;

 public:
  using Value = typename Adopting::Value;
  struct Draft {
    int64_t number = 0;
    typename Adopting::Draft adopted{};
  };
  static_assert(std::is_same_v<Value, typename Indexed::Value> &&
                std::is_same_v<Value, typename Threaded::Value>);

  TorchMaker(const std::shared_ptr<TorchSource<Loader>>& source,
             std::shared_ptr<const Collate> collate, const PassSpec& spec) {
    if (source->dataset()) {
      indexed_.emplace(source->dataset(), std::move(collate), spec);
    } else if (source->threads()) {
      threaded_.emplace(source->threads(), std::move(collate), spec);
    } else {
      adopting_.emplace(source->batches(), std::move(collate), spec);
    }
  }

  bool draw(Draft& draft) {
    if (indexed_) return indexed_->draw(draft.number);
    if (threaded_) return threaded_->draw(draft.number);
    return adopting_->draw(draft.adopted);
  }
  Produced<Value> build(Draft&& draft, const StopFlag& stop) const {
    if (indexed_) return indexed_->build(draft.number, stop);
    if (threaded_) return threaded_->build(draft.number, stop);
    return adopting_->build(std::move(draft.adopted), stop);
  }

 private:
  std::optional<Indexed> indexed_;
  std::optional<Threaded> threaded_;
  std::optional<Adopting> adopting_;
};

template <class Loader, class Collate>
struct SourceTraits<TorchSource<Loader>, Collate> {
  static constexpr SourceKind kKind = SourceKind::kBatchStream;  // or a dataset: kind() tells
  using Maker = TorchMaker<Loader, Collate>;
};

// Whether batches of the loader are the same however they are read.
template <class Loader>
constexpr bool reads_torch_by_index() {
  if constexpr (IndexedTorchLoader<Loader>::value) {
    using Dataset = typename IndexedTorchLoader<Loader>::Dataset;
    if constexpr (MapDataset<Dataset>) {
      using Indexed = MapMaker<Dataset, DefaultCollate>;
      using Adopting = BatchStreamMaker<typename Loader::BatchType, DefaultCollate>;
      return std::is_same_v<typename Indexed::Value, typename Adopting::Value>;
    }
  }
  return false;
}

}  // namespace accelerate::detail
