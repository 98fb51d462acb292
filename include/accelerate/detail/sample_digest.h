// Digests of samples, to check that the ranks have the same data. Internal: users do not
// call it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "accelerate/detail/dataset_access.h"
#include "accelerate/detail/fetch.h"
#include "accelerate/detail/packed_value.h"
#include "accelerate/export.h"
#include "accelerate/nested.h"

namespace accelerate::detail {

ACCELERATE_EXPORT uint64_t digest_of(const PackedValue& value);

// Reads a sample and returns a digest of it; throws what the dataset throws. Empty for data that
// cannot be compared.
using SampleDigest = std::function<uint64_t(size_t index)>;

// The sample in the way in which a loader reads it.
template <class Dataset>
auto read_alone(Dataset& dataset, size_t index) {
  if constexpr (dataset_detail::BatchGet<Dataset>) {
    return dataset_detail::batch_at(dataset, index);
  } else {
    return get_sample(dataset, index, {});
  }
}

template <class Dataset>
SampleDigest sample_digest(std::shared_ptr<Dataset> dataset) {
  if constexpr (Nested<decltype(read_alone(*dataset, 0))>) {
    return [dataset = std::move(dataset)](size_t index) {
      return digest_of(pack(read_alone(*dataset, index)));
    };
  } else {
    return {};
  }
}

}  // namespace accelerate::detail
