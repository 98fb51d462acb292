// Loaders of torch::data as sources of ours. Nothing here is called by users.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "accelerate/detail/batch_stream_maker.h"
#include "accelerate/detail/loader_pass.h"
#include "accelerate/detail/loader_source.h"
#include "accelerate/detail/map_maker.h"
#include "accelerate/detail/sample_digest.h"
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

  // torch's loader cannot begin anew before its batches have all been taken.
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

// The loader keeps its dataset where only subclasses may name it; a pointer to the member then
// works on any loader.
template <class Base>
struct TorchLoaderMembers : Base {
  static auto& dataset(Base& loader) { return loader.*(&TorchLoaderMembers::main_thread_dataset_); }
};
template <class Dataset, class Batch, class Request>
auto& dataset_of_torch(torch::data::DataLoaderBase<Dataset, Batch, Request>& loader) {
  using Base = torch::data::DataLoaderBase<Dataset, Batch, Request>;
  return TorchLoaderMembers<Base>::dataset(loader);
}

// A loader over data with random access: its dataset, where it can be reached, else its batches.
// With threads of its own it has a copy of the dataset in each of them and none for others.
template <class Loader>
class TorchSource {
 public:
  using Dataset = typename IndexedTorchLoader<Loader>::Dataset;
  using Batch = typename Loader::BatchType;

  explicit TorchSource(std::shared_ptr<Loader> loader) : loader_(std::move(loader)) {
    auto& dataset = dataset_of_torch(*loader_);
    if (dataset && dataset->size()) {
      dataset_ = std::shared_ptr<Dataset>(loader_, dataset.get());
    } else {
      batches_ = std::make_shared<BatchStream<Batch>>(batches_of_torch(loader_));
    }
  }

  // Null where the batches are all that can be had.
  const std::shared_ptr<Dataset>& dataset() const { return dataset_; }
  const std::shared_ptr<BatchStream<Batch>>& batches() const { return batches_; }
  SourceKind kind() const { return dataset_ ? SourceKind::kDataset : SourceKind::kBatchStream; }
  std::optional<int64_t> size() const {
    if (!dataset_) return std::nullopt;
    return static_cast<int64_t>(dataset_detail::size_of(*dataset_));
  }
  LoaderOptions options() const {
    if (!dataset_) return {};
    return {.batch_size = static_cast<int64_t>(loader_->options().batch_size),
            .shuffle = IndexedTorchLoader<Loader>::kShuffles,
            .drop_last = loader_->options().drop_last};
  }
  std::optional<SampleDigest> digest() const {
    if (!dataset_) return std::nullopt;
    return sample_digest(dataset_);
  }

 private:
  std::shared_ptr<Loader> loader_;
  std::shared_ptr<Dataset> dataset_;
  std::shared_ptr<BatchStream<Batch>> batches_;
};

template <class T>
inline constexpr bool is_torch_source = false;
template <class Loader>
inline constexpr bool is_torch_source<TorchSource<Loader>> = true;

// Makes batches in the one way or in the other.
template <class Loader, class Collate>
class TorchMaker {
  using Indexed = MapMaker<typename TorchSource<Loader>::Dataset, Collate>;
  using Adopting = BatchStreamMaker<typename Loader::BatchType, Collate>;

 public:
  using Value = typename Adopting::Value;
  using Draft = std::variant<typename Indexed::Draft, typename Adopting::Draft>;
  static_assert(std::is_same_v<Value, typename Indexed::Value>);

  TorchMaker(const std::shared_ptr<TorchSource<Loader>>& source,
             std::shared_ptr<const Collate> collate, const PassSpec& spec) {
    if (source->dataset()) {
      indexed_.emplace(source->dataset(), std::move(collate), spec);
    } else {
      adopting_.emplace(source->batches(), std::move(collate), spec);
    }
  }

  bool draw(Draft& draft) {
    if (indexed_) return indexed_->draw(draft.template emplace<0>());
    return adopting_->draw(draft.template emplace<1>());
  }
  Produced<Value> build(Draft&& draft, const StopFlag& stop) const {
    if (indexed_) return indexed_->build(std::get<0>(std::move(draft)), stop);
    return adopting_->build(std::get<1>(std::move(draft)), stop);
  }

 private:
  std::optional<Indexed> indexed_;
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
