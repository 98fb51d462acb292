// How samples are read from a dataset and become a batch. Internal: users do not call it.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "accelerate/detail/collated.h"
#include "accelerate/detail/dataset_access.h"
#include "accelerate/detail/feed.h"
#include "accelerate/export.h"
#include "accelerate/nested.h"

namespace accelerate::detail {

// What get_batch() of a dataset of type `dataset` returned: `returned` samples where `asked` were
// wanted. Throws DataError unless they are as many.
ACCELERATE_EXPORT void check_batch_size(size_t returned, size_t asked,
                                        const std::type_info& dataset);
// The same for a tensor of a whole batch, whose first dimension is the batch. An undefined one is a
// field that the dataset does not fill.
ACCELERATE_EXPORT void check_batch_size(const at::Tensor& tensor, size_t asked,
                                        const std::type_info& dataset);

// From a catch block: throws DataError that names the sample (or the samples) and says what the
// exception said; the exception itself is nested in it.
[[noreturn]] ACCELERATE_EXPORT void rethrow_for_sample(size_t index);
[[noreturn]] ACCELERATE_EXPORT void rethrow_for_batch(int64_t number);
[[noreturn]] ACCELERATE_EXPORT void rethrow_for_samples(c10::ArrayRef<size_t> indices);

// A generator of this thread, seeded by where the sample stands: the same for it on every rank, in
// every worker and after a resume. Valid until the next call.
ACCELERATE_EXPORT at::Generator& sample_generator(uint64_t seed, int64_t epoch, size_t index);

template <class Dataset>
concept MapDataset = (dataset_detail::SampleGet<Dataset> ||
                      dataset_detail::BatchGet<Dataset>)&&requires(const Dataset& dataset) {
  dataset.size();
};

// Where a sample is read for: what its randomness depends on.
struct SampleContext {
  uint64_t seed = 0;
  int64_t epoch = 0;
};

template <class Dataset>
auto get_sample(Dataset& dataset, size_t index, const SampleContext& context) {
  static_assert(dataset_detail::SampleGet<Dataset>,
                "a dataset needs get(size_t) or get_batch(ArrayRef<size_t>)");
  if constexpr (dataset_detail::SeededGet<Dataset>) {
    return dataset_detail::sample_at(dataset, index,
                                     sample_generator(context.seed, context.epoch, index));
  } else {
    return dataset_detail::sample_at(dataset, index);
  }
}

// The collate function that a loader has if it was given none: collate_samples().
struct DefaultCollate {
  template <class T>
  auto operator()(std::vector<T>&& samples) const {
    return collate_samples(std::move(samples));
  }
};

template <class Dataset>
auto get_samples(Dataset& dataset, c10::ArrayRef<size_t> indices, const SampleContext& context,
                 const StopFlag& stop) {
  std::vector<dataset_detail::SampleOf<Dataset>> samples;
  samples.reserve(indices.size());
  for (const size_t index : indices) {
    if (stop.load(std::memory_order_relaxed)) break;
    try {
      samples.push_back(get_sample(dataset, index, context));
    } catch (...) {
      rethrow_for_sample(index);
    }
  }
  return samples;
}

template <class Dataset>
auto get_whole_batch(Dataset& dataset, c10::ArrayRef<size_t> indices) {
  try {
    return dataset_detail::batch_at(dataset, indices);
  } catch (...) {
    rethrow_for_samples(indices);
  }
}

// The samples at `indices` as one batch. Returns early, with anything, once `stop` is set.
template <class Dataset, class Collate>
auto fetch(Dataset& dataset, c10::ArrayRef<size_t> indices, const Collate& collate,
           const SampleContext& context, const StopFlag& stop) {
  if constexpr (dataset_detail::SampleBatchGet<Dataset>) {
    auto samples = get_whole_batch(dataset, indices);
    check_batch_size(samples.size(), indices.size(), typeid(Dataset));
    return to_batch(collate(std::move(samples)));
  } else if constexpr (dataset_detail::BatchGet<Dataset> &&
                       std::is_same_v<Collate, DefaultCollate>) {
    auto batch = to_batch(get_whole_batch(dataset, indices));
    for_each_tensor(batch, [&](const at::Tensor& tensor) {
      check_batch_size(tensor, indices.size(), typeid(Dataset));
    });
    return batch;
  } else {
    auto samples = get_samples(dataset, indices, context, stop);
    using Result = decltype(to_batch(collate(std::move(samples))));
    if (stop.load(std::memory_order_relaxed)) return Result{};
    return to_batch(collate(std::move(samples)));
  }
}

}  // namespace accelerate::detail
