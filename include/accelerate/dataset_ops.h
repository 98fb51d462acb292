// Datasets made of datasets: joined, cut, split, mapped and filtered.
//
//   auto parts = accelerate::random_split(dataset, {0.9, 0.1}, seed);
//   auto train = accelerate::map(parts[0], [](Sample sample, at::Generator& generator) { ... });
//
// All of them take a dataset by value or by std::shared_ptr, share it, and are cheap to copy. They
// read it from whatever threads read them, so it must allow that; a torch dataset whose get() is
// not const is taken too, on the same condition. A std::vector counts as the dataset of its
// elements. The outer dataset offers samples in the same forms as the inner one:
//   get(i)             where every inner dataset has it
//   get(i, generator)  where one of them, or the function of map(), takes a generator
//   get_batch(indices) where every inner dataset has it and the result is the same as with get()
// Indices that are not below size() are refused with a UsageError.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "accelerate/detail/concat_dataset.h"
#include "accelerate/detail/dataset_access.h"
#include "accelerate/export.h"

namespace accelerate {

// Sample i is sample indices[i] of another dataset. Made by subset(), random_split(), filter().
template <class Dataset>
class Subset {
 public:
  // Throws UsageError for an index that the dataset does not have.
  Subset(std::shared_ptr<Dataset> dataset, std::vector<size_t> indices)
      : dataset_(std::move(dataset)),
        indices_(std::make_shared<const std::vector<size_t>>(std::move(indices))) {
    const size_t size = dataset_detail::size_of(*dataset_);
    for (const size_t index : *indices_) detail::check_index(index, size);
  }

  size_t size() const { return indices_->size(); }
  // Of the samples in the inner dataset.
  const std::vector<size_t>& indices() const { return *indices_; }

  auto get(size_t index) const requires dataset_detail::PlainGet<Dataset> {
    return dataset_detail::sample_at(*dataset_, inner(index));
  }
  auto get(size_t index,
           at::Generator& generator) const requires dataset_detail::SeededGet<Dataset> {
    return dataset_detail::sample_at(*dataset_, inner(index), generator);
  }
  auto get_batch(c10::ArrayRef<size_t> indices) const requires dataset_detail::BatchGet<Dataset> {
    std::vector<size_t> chosen;
    chosen.reserve(indices.size());
    for (const size_t index : indices) chosen.push_back(inner(index));
    return dataset_detail::batch_at(*dataset_, chosen);
  }

 private:
  size_t inner(size_t index) const {
    detail::check_index(index, indices_->size());
    return (*indices_)[index];
  }

  std::shared_ptr<Dataset> dataset_;
  std::shared_ptr<const std::vector<size_t>> indices_;
};

template <class Dataset>
auto subset(Dataset&& dataset, std::vector<size_t> indices) {
  auto shared = dataset_detail::share(std::forward<Dataset>(dataset));
  return Subset<typename decltype(shared)::element_type>(std::move(shared), std::move(indices));
}

// One part of random_split(): a number of samples (any integer) or a fraction of all (a double).
class SplitPart {
 public:
  template <std::integral Count>
  SplitPart(Count samples)  // NOLINT(google-explicit-constructor): {800, 200} is the call's form
      : value_(static_cast<double>(samples)), is_fraction_(false) {}
  template <std::floating_point Fraction>
  SplitPart(Fraction fraction)  // NOLINT(google-explicit-constructor): so is {0.8, 0.2}
      : value_(fraction), is_fraction_(true) {}

  double value() const { return value_; }
  bool is_fraction() const { return is_fraction_; }

 private:
  double value_;
  bool is_fraction_;
};

namespace dataset_detail {

// The indices of each part of random_split().
ACCELERATE_EXPORT std::vector<std::vector<size_t>> split_indices(
    size_t size, const std::vector<SplitPart>& parts, uint64_t seed);

// The generator with which filter() asks for sample `index` of a dataset that draws at random.
ACCELERATE_EXPORT at::Generator filter_generator(size_t index);

}  // namespace dataset_detail

// Splits a dataset at random into parts that share no sample. The parts are the same as those of
// torch.utils.data.random_split with a generator of this seed: fractions are rounded down and what
// is left is dealt to the parts in turn, from the first. Every rank must give the same seed.
//
// Throws UsageError if counts do not add up to the size of the dataset, fractions to 1, or the two
// are mixed.
template <class Dataset>
auto random_split(Dataset&& dataset, const std::vector<SplitPart>& parts, uint64_t seed) {
  auto shared = dataset_detail::share(std::forward<Dataset>(dataset));
  std::vector<Subset<typename decltype(shared)::element_type>> result;
  for (auto& indices :
       dataset_detail::split_indices(dataset_detail::size_of(*shared), parts, seed)) {
    result.emplace_back(shared, std::move(indices));
  }
  return result;
}

namespace dataset_detail {

template <class Function, class Dataset>
concept SampleFunction = std::invocable<const Function&, SampleOf<Dataset>>;
template <class Function, class Dataset>
concept SeededSampleFunction = !SampleFunction<Function, Dataset> &&
                               std::invocable<const Function&, SampleOf<Dataset>, at::Generator&>;

}  // namespace dataset_detail

// Sample i is function(sample i of another dataset). Made by map().
template <class Dataset, class Function>
class MappedDataset {
  static constexpr bool kDraws = dataset_detail::SeededSampleFunction<Function, Dataset>;
  static_assert(
      dataset_detail::SampleGet<Dataset>,
      "map() works on samples: the dataset has no get(size_t); map_batches() may be what you want");
  static_assert(kDraws || dataset_detail::SampleFunction<Function, Dataset>,
                "the function of map() must take (sample) or (sample, at::Generator&), and be "
                "callable when const, because it is called from several threads");

 public:
  MappedDataset(std::shared_ptr<Dataset> dataset, Function function)
      : dataset_(std::move(dataset)),
        function_(std::make_shared<const Function>(std::move(function))) {}

  size_t size() const { return dataset_detail::size_of(*dataset_); }

  auto get(size_t index) const requires(!kDraws && dataset_detail::PlainGet<Dataset>) {
    return std::invoke(*function_, dataset_detail::sample_at(*dataset_, index));
  }
  auto get(size_t index, at::Generator& generator) const
      requires(kDraws || dataset_detail::SeededGet<Dataset>) {
    auto sample = dataset_detail::sample_at(*dataset_, index, generator);
    if constexpr (kDraws) {
      return std::invoke(*function_, std::move(sample), generator);
    } else {
      return std::invoke(*function_, std::move(sample));
    }
  }
  // Only where the inner one returns samples: the function cannot take whole batches.
  auto get_batch(c10::ArrayRef<size_t> indices) const
      requires(!kDraws && dataset_detail::SampleBatchGet<Dataset>) {
    auto samples = dataset_detail::batch_at(*dataset_, indices);
    using Mapped = decltype(std::invoke(*function_, std::move(samples.front())));
    std::vector<std::remove_cvref_t<Mapped>> mapped;
    mapped.reserve(samples.size());
    for (auto& sample : samples) mapped.push_back(std::invoke(*function_, std::move(sample)));
    return mapped;
  }

 private:
  std::shared_ptr<Dataset> dataset_;
  std::shared_ptr<const Function> function_;
};

// Applies `function` to each sample as it is read: (sample) or (sample, at::Generator&). The
// generator is the loader's, seeded by (seed, epoch, index): draw from nothing else, and the same
// epoch gives the same samples again. Called from several threads at once.
template <class Dataset, class Function>
auto map(Dataset&& dataset, Function function) {
  auto shared = dataset_detail::share(std::forward<Dataset>(dataset));
  return MappedDataset<typename decltype(shared)::element_type, Function>(std::move(shared),
                                                                          std::move(function));
}

// A batch is function(batch of another dataset). Made by map_batches().
template <class Dataset, class Function>
class BatchMappedDataset {
  static_assert(
      dataset_detail::BatchGet<Dataset> || dataset_detail::PlainGet<Dataset>,
      "map_batches() does not pass a generator on: use map() on a dataset that draws at random");

 public:
  BatchMappedDataset(std::shared_ptr<Dataset> dataset, Function function)
      : dataset_(std::move(dataset)),
        function_(std::make_shared<const Function>(std::move(function))) {}

  size_t size() const { return dataset_detail::size_of(*dataset_); }

  auto get_batch(c10::ArrayRef<size_t> indices) const {
    if constexpr (dataset_detail::BatchGet<Dataset>) {
      return std::invoke(*function_, dataset_detail::batch_at(*dataset_, indices));
    } else {
      std::vector<dataset_detail::SampleOf<Dataset>> samples;
      samples.reserve(indices.size());
      for (const size_t index : indices) {
        samples.push_back(dataset_detail::sample_at(*dataset_, index));
      }
      return std::invoke(*function_, std::move(samples));
    }
  }

 private:
  std::shared_ptr<Dataset> dataset_;
  std::shared_ptr<const Function> function_;
};

// Applies `function` to what get_batch() of the dataset returns: the whole stacked batch, or the
// std::vector of samples (also of a dataset that has get() alone). It must return as many samples
// as it got. Called from several threads at once. The result has no get().
template <class Dataset, class Function>
auto map_batches(Dataset&& dataset, Function function) {
  auto shared = dataset_detail::share(std::forward<Dataset>(dataset));
  return BatchMappedDataset<typename decltype(shared)::element_type, Function>(std::move(shared),
                                                                               std::move(function));
}

// The samples for which predicate(sample) is true, in their order. Reads every sample once, here
// and now, and keeps the indices: 8 bytes for each sample that stays. For a dataset that draws
// at random the predicate sees one draw.
template <class Dataset, class Predicate>
auto filter(Dataset&& dataset, const Predicate& predicate) {
  auto shared = dataset_detail::share(std::forward<Dataset>(dataset));
  using Inner = typename decltype(shared)::element_type;
  static_assert(dataset_detail::SampleGet<Inner>,
                "filter() works on samples: the dataset has no get(size_t)");
  std::vector<size_t> kept;
  const size_t size = dataset_detail::size_of(*shared);
  for (size_t index = 0; index < size; ++index) {
    if constexpr (dataset_detail::SeededGet<Inner>) {
      at::Generator generator = dataset_detail::filter_generator(index);
      if (predicate(dataset_detail::sample_at(*shared, index, generator))) kept.push_back(index);
    } else {
      if (predicate(dataset_detail::sample_at(*shared, index))) kept.push_back(index);
    }
  }
  return Subset<Inner>(std::move(shared), std::move(kept));
}

// One dataset after the other. They may be of different types, with the same type of sample.
template <class First, class Second, class... More>
auto concat(First&& first, Second&& second, More&&... more) {
  using dataset_detail::share;
  return ConcatDataset(dataset_detail::TupleParts(share(std::forward<First>(first)),
                                                  share(std::forward<Second>(second)),
                                                  share(std::forward<More>(more))...));
}
// Of any number of datasets of one type, or of pointers to such. Throws UsageError for none.
template <class Dataset>
auto concat(std::vector<Dataset> datasets) {
  using Inner = dataset_detail::SharedDataset<Dataset>;
  std::vector<std::shared_ptr<Inner>> parts;
  parts.reserve(datasets.size());
  for (Dataset& dataset : datasets) parts.push_back(dataset_detail::share(std::move(dataset)));
  return ConcatDataset(dataset_detail::VectorParts<Inner>(std::move(parts)));
}

}  // namespace accelerate
