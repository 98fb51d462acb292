// The forms in which datasets give their samples, and one way to ask for each of them. Internal:
// users do not call it.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <concepts>
#include <cstddef>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "accelerate/detail/is_vector.h"
#include "accelerate/export.h"

namespace accelerate::detail {

// Throws UsageError unless index < size.
ACCELERATE_EXPORT void check_index(size_t index, size_t size);

}  // namespace accelerate::detail

namespace accelerate::dataset_detail {

template <class T>
concept Vector = detail::is_vector<std::remove_cvref_t<T>>;

// A std::vector is a dataset of its elements.
template <class Dataset>
concept PlainGet = Vector<Dataset> || requires(Dataset& dataset, size_t index) {
  dataset.get(index);
};
template <class Dataset>
concept SeededGet = requires(Dataset& dataset, size_t index, at::Generator& generator) {
  dataset.get(index, generator);
};
template <class Dataset>
concept BatchGet = requires(Dataset& dataset, c10::ArrayRef<size_t> indices) {
  dataset.get_batch(indices);
};

template <class Dataset>
concept SampleGet = PlainGet<Dataset> || SeededGet<Dataset>;

template <PlainGet Dataset>
auto sample_at(Dataset& dataset, size_t index) {
  if constexpr (Vector<Dataset>) {
    detail::check_index(index, dataset.size());
    return typename Dataset::value_type(dataset[index]);
  } else {
    return dataset.get(index);
  }
}

// Hands on the generator to a dataset that asks for one.
template <SampleGet Dataset>
auto sample_at(Dataset& dataset, size_t index, at::Generator& generator) {
  if constexpr (SeededGet<Dataset>) {
    return dataset.get(index, generator);
  } else {
    return sample_at(dataset, index);
  }
}

template <BatchGet Dataset>
auto batch_at(Dataset& dataset, c10::ArrayRef<size_t> indices) {
  return dataset.get_batch(indices);
}

template <class Dataset>
struct SampleType;
template <SampleGet Dataset>
struct SampleType<Dataset> {
  using Type =
      decltype(sample_at(std::declval<Dataset&>(), size_t{}, std::declval<at::Generator&>()));
};
template <BatchGet Dataset>
requires(!SampleGet<Dataset>) struct SampleType<Dataset> {
  using Type = decltype(batch_at(std::declval<Dataset&>(), c10::ArrayRef<size_t>()));
};
// What get() returns; of a dataset that has get_batch() alone, what that returns.
template <class Dataset>
using SampleOf = typename SampleType<Dataset>::Type;

template <BatchGet Dataset>
using BatchOf = decltype(batch_at(std::declval<Dataset&>(), c10::ArrayRef<size_t>()));

template <class Dataset>
concept SampleBatchGet = BatchGet<Dataset> && Vector<BatchOf<Dataset>>;

// Throws UsageError for a dataset that does not know its size.
ACCELERATE_EXPORT size_t known_size(std::optional<size_t> size);

// Throws DataError unless get_batch() returned as many samples as it was asked for.
ACCELERATE_EXPORT void check_returned(size_t returned, size_t asked);

template <class Dataset>
size_t size_of(const Dataset& dataset) {
  const auto size = dataset.size();
  if constexpr (std::integral<std::remove_cvref_t<decltype(size)>>) {
    return static_cast<size_t>(size);
  } else {
    return known_size(size ? std::optional<size_t>(static_cast<size_t>(*size)) : std::nullopt);
  }
}

// Throws UsageError for a null pointer.
ACCELERATE_EXPORT void check_dataset(const void* dataset);

// A dataset given by value is moved or copied in, one given by pointer is shared.
template <class Dataset>
auto share(Dataset&& dataset) {
  using Owned = std::remove_cvref_t<Dataset>;
  return std::make_shared<Owned>(std::forward<Dataset>(dataset));
}
template <class Dataset>
std::shared_ptr<Dataset> share(std::shared_ptr<Dataset> dataset) {
  check_dataset(dataset.get());
  return dataset;
}

template <class Dataset>
using SharedDataset = typename decltype(share(std::declval<Dataset>()))::element_type;

}  // namespace accelerate::dataset_detail
