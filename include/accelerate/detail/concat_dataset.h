// Datasets one after the other. Users call concat() of dataset_ops.h.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "accelerate/batch.h"
#include "accelerate/detail/dataset_access.h"
#include "accelerate/export.h"

namespace torch::data {
template <typename Data, typename Target>
struct Example;
}  // namespace torch::data

namespace accelerate::dataset_detail {

// Throws UsageError if there is no dataset; returns the sums 0, n0, n0 + n1, ...
ACCELERATE_EXPORT std::vector<size_t> first_indices(const std::vector<size_t>& sizes);
// Row k of the parts, one after the other, becomes row positions[k] of the result. An undefined
// tensor is a field that the dataset does not fill: throws DataError where only some fill it.
ACCELERATE_EXPORT at::Tensor merge_rows(const std::vector<at::Tensor>& parts,
                                        const std::vector<size_t>& positions);

// Batches that are whole, stacked, and known tensor by tensor, so that parts can become one.
template <class Batch>
struct BatchTensors {
  static constexpr bool kKnown = false;
};
template <>
struct BatchTensors<at::Tensor> {
  static constexpr bool kKnown = true;
  static auto of(at::Tensor& batch) { return std::tie(batch); }
};
template <class Batch>
struct DataAndTarget {
  static constexpr bool kKnown = true;
  static auto of(Batch& batch) { return std::tie(batch.data, batch.target); }
};
template <class Batch>
struct DataAlone {
  static constexpr bool kKnown = true;
  static auto of(Batch& batch) { return std::tie(batch.data); }
};
template <>
struct BatchTensors<Sample> : DataAndTarget<Sample> {};
template <>
struct BatchTensors<UnlabelledBatch> : DataAlone<UnlabelledBatch> {};
template <>
struct BatchTensors<torch::data::Example<at::Tensor, at::Tensor>>
    : DataAndTarget<torch::data::Example<at::Tensor, at::Tensor>> {};
template <>
struct BatchTensors<torch::data::Example<at::Tensor, void>>
    : DataAlone<torch::data::Example<at::Tensor, void>> {};
template <class... Fields>
requires(std::is_same_v<Fields, at::Tensor>&&...) struct BatchTensors<std::tuple<Fields...>> {
  static constexpr bool kKnown = true;
  static auto of(std::tuple<Fields...>& batch) {
    return std::apply([](Fields&... fields) { return std::tie(fields...); }, batch);
  }
};

// The batches of some parts, in the order of the parts, as one batch in the order that was asked.
template <class Batch>
Batch merge_batches(std::vector<Batch> batches, const std::vector<size_t>& positions) {
  auto merged = BatchTensors<Batch>::of(batches.front());
  const auto merge_field = [&]<size_t Field>(std::integral_constant<size_t, Field>) {
    std::vector<at::Tensor> parts;
    for (Batch& batch : batches) parts.push_back(std::get<Field>(BatchTensors<Batch>::of(batch)));
    std::get<Field>(merged) = merge_rows(parts, positions);
  };
  [&]<size_t... Field>(std::index_sequence<Field...>) {
    (merge_field(std::integral_constant<size_t, Field>()), ...);
  }
  (std::make_index_sequence<std::tuple_size_v<decltype(merged)>>());
  return std::move(batches.front());
}

template <class Dataset>
constexpr bool gives_mergeable_batches() {
  if constexpr (BatchGet<Dataset>) {
    return Vector<BatchOf<Dataset>> || BatchTensors<BatchOf<Dataset>>::kKnown;
  } else {
    return false;
  }
}

template <class Dataset, class Other>
constexpr bool gives_same_batches() {
  if constexpr (BatchGet<Dataset> && BatchGet<Other>) {
    return std::is_same_v<BatchOf<Dataset>, BatchOf<Other>>;
  } else {
    return false;
  }
}

// Parts of several types, whose samples are of one type.
template <class First, class... More>
class TupleParts {
  static_assert((std::is_same_v<SampleOf<First>, SampleOf<More>> && ...),
                "concat() needs datasets whose samples are of one type");

 public:
  static constexpr bool kPlain = PlainGet<First> && (PlainGet<More> && ...);
  static constexpr bool kSeeded = (SeededGet<First> || (SeededGet<More> || ...)) &&
                                  SampleGet<First> && (SampleGet<More> && ...);
  static constexpr bool kBatch =
      gives_mergeable_batches<First>() && (gives_same_batches<First, More>() && ...);
  using AnyPart = First;

  explicit TupleParts(std::shared_ptr<First> first, std::shared_ptr<More>... more)
      : datasets_(std::move(first), std::move(more)...) {}

  std::vector<size_t> sizes() const {
    return std::apply(
        [](const auto&... datasets) { return std::vector<size_t>{size_of(*datasets)...}; },
        datasets_);
  }
  // Calls visitor(dataset) with the dataset of number `part`.
  template <class Visitor>
  auto visit(size_t part, const Visitor& visitor) const {
    return visit_from<0>(part, visitor);
  }

 private:
  template <size_t Number, class Visitor>
  auto visit_from(size_t part, const Visitor& visitor) const {
    if constexpr (Number < sizeof...(More)) {
      if (part != Number) return visit_from<Number + 1>(part, visitor);
    }
    return visitor(*std::get<Number>(datasets_));
  }

  std::tuple<std::shared_ptr<First>, std::shared_ptr<More>...> datasets_;
};

// Any number of parts of one type.
template <class Dataset>
class VectorParts {
 public:
  static constexpr bool kPlain = PlainGet<Dataset>;
  static constexpr bool kSeeded = SeededGet<Dataset>;
  static constexpr bool kBatch = gives_mergeable_batches<Dataset>();
  using AnyPart = Dataset;

  explicit VectorParts(std::vector<std::shared_ptr<Dataset>> datasets)
      : datasets_(
            std::make_shared<const std::vector<std::shared_ptr<Dataset>>>(std::move(datasets))) {}

  std::vector<size_t> sizes() const {
    std::vector<size_t> sizes;
    for (const auto& dataset : *datasets_) sizes.push_back(size_of(*dataset));
    return sizes;
  }
  template <class Visitor>
  auto visit(size_t part, const Visitor& visitor) const {
    return visitor(*(*datasets_)[part]);
  }

 private:
  std::shared_ptr<const std::vector<std::shared_ptr<Dataset>>> datasets_;
};

}  // namespace accelerate::dataset_detail

namespace accelerate {

// Made by concat(). The sizes of the parts are asked once, here.
template <class Parts>
class ConcatDataset {
 public:
  explicit ConcatDataset(Parts parts)
      : parts_(std::move(parts)), firsts_(dataset_detail::first_indices(parts_.sizes())) {}

  size_t size() const { return firsts_.back(); }

  auto get(size_t index) const requires(Parts::kPlain) {
    const size_t part = part_of(index);
    return parts_.visit(part, [&](auto& dataset) {
      return dataset_detail::sample_at(dataset, index - firsts_[part]);
    });
  }
  auto get(size_t index, at::Generator& generator) const requires(Parts::kSeeded) {
    const size_t part = part_of(index);
    return parts_.visit(part, [&](auto& dataset) {
      return dataset_detail::sample_at(dataset, index - firsts_[part], generator);
    });
  }
  // Asks every part once for what belongs to it. Whole batches are put together from the parts with
  // one more copy, unless all indices lie in one part.
  auto get_batch(c10::ArrayRef<size_t> indices) const requires(Parts::kBatch) {
    using Batch = dataset_detail::BatchOf<typename Parts::AnyPart>;
    std::vector<std::vector<size_t>> inner(firsts_.size() - 1);
    std::vector<std::vector<size_t>> places(inner.size());
    for (size_t place = 0; place < indices.size(); ++place) {
      const size_t part = part_of(indices[place]);
      inner[part].push_back(indices[place] - firsts_[part]);
      places[part].push_back(place);
    }
    if (indices.empty()) return batch_of(0, indices);

    std::vector<Batch> batches;
    std::vector<size_t> positions;
    for (size_t part = 0; part < inner.size(); ++part) {
      if (inner[part].empty()) continue;
      batches.push_back(batch_of(part, inner[part]));
      positions.insert(positions.end(), places[part].begin(), places[part].end());
    }
    if (batches.size() == 1) return std::move(batches.front());
    if constexpr (dataset_detail::Vector<Batch>) {
      return merge_samples(std::move(batches), positions);
    } else {
      return dataset_detail::merge_batches(std::move(batches), positions);
    }
  }

 private:
  size_t part_of(size_t index) const {
    detail::check_index(index, size());
    const auto after = std::upper_bound(firsts_.begin(), firsts_.end(), index);
    return static_cast<size_t>(after - firsts_.begin()) - 1;
  }

  auto batch_of(size_t part, c10::ArrayRef<size_t> indices) const {
    return parts_.visit(part,
                        [&](auto& dataset) { return dataset_detail::batch_at(dataset, indices); });
  }

  template <class T>
  static std::vector<T> merge_samples(std::vector<std::vector<T>> batches,
                                      const std::vector<size_t>& positions) {
    std::vector<T*> sources(positions.size());
    size_t next = 0;
    for (auto& batch : batches) {
      for (T& sample : batch) {
        if (next < positions.size()) sources[positions[next]] = &sample;
        ++next;
      }
    }
    dataset_detail::check_returned(next, positions.size());
    std::vector<T> merged;
    merged.reserve(sources.size());
    for (T* sample : sources) merged.push_back(std::move(*sample));
    return merged;
  }

  Parts parts_;
  std::vector<size_t> firsts_;
};

}  // namespace accelerate
