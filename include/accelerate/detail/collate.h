// How samples of a dataset become a batch. Nothing here is called by users.
#pragma once

#include <ATen/core/Tensor.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "accelerate/batch.h"

namespace torch::data {
template <typename Data, typename Target>
struct Example;
}  // namespace torch::data

namespace accelerate::detail {

// Stacks the samples' tensors along a new first dimension. Throws DataError if there is none, one
// is undefined, or their shapes differ.
at::Tensor stack_samples(const std::vector<at::Tensor>& tensors);

// What get_batch() of a dataset of type `dataset` returned: `returned` samples where `asked` were
// wanted. Throws DataError unless they are as many.
void check_batch_size(size_t returned, size_t asked, const std::type_info& dataset);
// The same for a tensor of a whole batch, whose first dimension is the batch. An undefined one is a
// field that the dataset does not fill.
void check_batch_size(const at::Tensor& tensor, size_t asked, const std::type_info& dataset);

// The size of a dataset that may not know it. Throws DataError if it does not.
int64_t known_size(std::optional<int64_t> size);

// Stacks one field of all samples.
template <class T, class Field>
at::Tensor stack_field(const std::vector<T>& samples, Field field) {
  std::vector<at::Tensor> tensors;
  tensors.reserve(samples.size());
  for (const T& sample : samples) tensors.push_back(field(sample));
  return stack_samples(tensors);
}

// What the loader knows of a sample type: the batch it makes, and the batch's tensors.
template <class T>
struct SampleKind;

template <class T>
struct LabelledKind {
  using Batch = T;
  static T stack(const std::vector<T>& samples) {
    T batch;
    batch.data = stack_field(samples, [](const T& sample) { return sample.data; });
    batch.target = stack_field(samples, [](const T& sample) { return sample.target; });
    return batch;
  }
  static T whole(T batch) { return batch; }
  template <class Visit>
  static void for_each_tensor(T& batch, Visit visit) {
    visit(batch.data);
    visit(batch.target);
  }
};

template <class T>
struct UnlabelledKind {
  using Batch = T;
  static T stack(const std::vector<T>& samples) {
    T batch;
    batch.data = stack_field(samples, [](const T& sample) { return sample.data; });
    return batch;
  }
  static T whole(T batch) { return batch; }
  template <class Visit>
  static void for_each_tensor(T& batch, Visit visit) {
    visit(batch.data);
  }
};

template <>
struct SampleKind<Sample> : LabelledKind<Sample> {};
template <>
struct SampleKind<torch::data::Example<at::Tensor, at::Tensor>>
    : LabelledKind<torch::data::Example<at::Tensor, at::Tensor>> {};
template <>
struct SampleKind<torch::data::Example<at::Tensor, void>>
    : UnlabelledKind<torch::data::Example<at::Tensor, void>> {};
template <>
struct SampleKind<UnlabelledBatch> : UnlabelledKind<UnlabelledBatch> {};

template <>
struct SampleKind<at::Tensor> {
  using Batch = UnlabelledBatch;
  static UnlabelledBatch stack(const std::vector<at::Tensor>& samples) {
    return {stack_samples(samples)};
  }
  static UnlabelledBatch whole(at::Tensor batch) { return {std::move(batch)}; }
};

template <class T>
concept KnownSample = requires {
  typename SampleKind<std::remove_cvref_t<T>>::Batch;
};

template <class T>
struct IsVector : std::false_type {};
template <class T>
struct IsVector<std::vector<T>> : std::true_type {};

template <class Dataset>
concept GivesBatches = requires(Dataset& dataset, c10::ArrayRef<size_t> indices) {
  dataset.get_batch(indices);
};
template <class Dataset>
concept GivesSamples = requires(Dataset& dataset, size_t index) {
  dataset.get(index);
};

// The samples at `indices`, as one batch.
template <class Dataset>
auto fetch(Dataset& dataset, c10::ArrayRef<size_t> indices) {
  static_assert(GivesBatches<Dataset> || GivesSamples<Dataset>,
                "a dataset needs get(size_t) or get_batch(ArrayRef<size_t>)");
  if constexpr (GivesBatches<Dataset>) {
    auto result = dataset.get_batch(indices);
    using Result = decltype(result);
    if constexpr (IsVector<Result>::value) {
      static_assert(KnownSample<typename Result::value_type>,
                    "a sample must be a torch::data::Example of tensors, an accelerate::Sample or "
                    "a tensor");
      check_batch_size(result.size(), indices.size(), typeid(Dataset));
      return SampleKind<typename Result::value_type>::stack(result);
    } else {
      static_assert(KnownSample<Result>,
                    "a batch must be a torch::data::Example of tensors, an accelerate::Sample or a "
                    "tensor");
      auto batch = SampleKind<Result>::whole(std::move(result));
      SampleKind<decltype(batch)>::for_each_tensor(batch, [&](const at::Tensor& tensor) {
        check_batch_size(tensor, indices.size(), typeid(Dataset));
      });
      return batch;
    }
  } else {
    using Result = std::remove_cvref_t<decltype(dataset.get(size_t{}))>;
    static_assert(KnownSample<Result>,
                  "a sample must be a torch::data::Example of tensors, an accelerate::Sample or a "
                  "tensor");
    std::vector<Result> samples;
    samples.reserve(indices.size());
    for (const size_t index : indices) samples.push_back(dataset.get(index));
    return SampleKind<Result>::stack(samples);
  }
}

template <class Dataset>
using BatchValue = decltype(fetch(std::declval<Dataset&>(), c10::ArrayRef<size_t>{}));

template <class Dataset>
int64_t size_of(const Dataset& dataset) {
  const auto size = dataset.size();
  if constexpr (std::integral<std::remove_cvref_t<decltype(size)>>) {
    return static_cast<int64_t>(size);
  } else {
    return known_size(size ? std::optional<int64_t>(static_cast<int64_t>(*size)) : std::nullopt);
  }
}

}  // namespace accelerate::detail
