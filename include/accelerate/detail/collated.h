// The default collate: how the samples of a dataset become one batch. Internal: users do not
// call it.
//
//   a sample has                            the batch has
//   at::Tensor                              at::Tensor, stacked along a new first dimension
//   bool, uint8_t, float, double            at::Tensor [B] of that dtype
//   other integers, enumerations            at::Tensor [B] of kLong
//   std::string                             std::vector<std::string>
//   std::vector or std::array of numbers    at::Tensor [B, L]
//   std::vector<T>, std::array<T, N>        the same of collated entries, each with B rows
//   std::pair, std::tuple, std::optional    the same of collated entries
//   std::map or unordered_map<string, T>    the same of collated entries
//   torch::data::Example<D, T>              torch::data::Example of the collated D and T
//   accelerate::Sample, UnlabelledBatch     itself
//   a struct with ACCELERATE_FIELDS         its nested type `Batch`, else itself
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>
#include <c10/util/ArrayRef.h>

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "accelerate/batch.h"
#include "accelerate/detail/nested_traits.h"
#include "accelerate/export.h"

namespace accelerate::detail {

// One tensor [B, ...] from B tensors of one shape, dtype and device, in pinned memory inside a
// PinnedCollation. Throws DataError if there is none, one is undefined, or they differ. If no
// sample has the tensor it is undefined. `path` is its place in the sample, for messages.
ACCELERATE_EXPORT at::Tensor stack_samples(c10::ArrayRef<at::Tensor> samples,
                                           const NestedPath& path);
// An uninitialised CPU tensor, in pinned memory inside a PinnedCollation.
ACCELERATE_EXPORT at::Tensor empty_batch(at::IntArrayRef sizes, at::ScalarType dtype);

// Each throws DataError.
ACCELERATE_EXPORT void check_samples(size_t samples);
ACCELERATE_EXPORT void check_length(const NestedPath& path, size_t first, size_t sample,
                                    size_t length);
[[noreturn]] ACCELERATE_EXPORT void refuse_keys(const NestedPath& path, const std::string& key,
                                                size_t sample);
[[noreturn]] ACCELERATE_EXPORT void refuse_optional(const NestedPath& path, size_t sample);

template <class T>
struct CollateTraits {
  static_assert(
      !std::same_as<T, T>,
      "a sample must be built of tensors, numbers and strings by std::pair, std::tuple, "
      "std::array, std::vector, std::optional, std::map<std::string, T>, torch::data::Example, "
      "accelerate::Sample and structs with ACCELERATE_FIELDS; for any other sample give "
      "data_loader() a collate function");
  using Result = at::Tensor;
};

// The batch that samples of type T become.
template <class T>
using Collated = typename CollateTraits<T>::Result;

// `samples` is used up. Throws DataError, naming sample and place, if there is none or they
// differ in what must be equal.
template <class T>
Collated<T> collate_samples(std::vector<T>&& samples) {
  check_samples(samples.size());
  return CollateTraits<T>::collate(std::move(samples), NestedPath());
}

template <>
struct CollateTraits<at::Tensor> {
  using Result = at::Tensor;
  static at::Tensor collate(std::vector<at::Tensor>&& samples, const NestedPath& path) {
    return stack_samples(samples, path);
  }
};

template <class T>
using Element = std::conditional_t<
    std::is_floating_point_v<T>, std::conditional_t<std::same_as<T, float>, float, double>,
    std::conditional_t<std::same_as<T, bool> || std::same_as<T, uint8_t>, T, int64_t>>;

template <Number T>
struct CollateTraits<T> {
  using Result = at::Tensor;
  static at::Tensor collate(std::vector<T>&& samples, const NestedPath&) {
    const std::array<int64_t, 1> sizes{static_cast<int64_t>(samples.size())};
    at::Tensor batch = empty_batch(sizes, c10::CppTypeToScalarType<Element<T>>::value);
    auto* out = static_cast<Element<T>*>(batch.data_ptr());
    for (const T number : samples) *out++ = static_cast<Element<T>>(number);
    return batch;
  }
};

template <>
struct CollateTraits<std::string> {
  using Result = std::vector<std::string>;
  static Result collate(std::vector<std::string>&& samples, const NestedPath&) {
    return std::move(samples);
  }
};

// Sequences of numbers: one row each.
template <class Sequence>
struct CollateNumberRows {
  using Result = at::Tensor;
  static at::Tensor collate(std::vector<Sequence>&& samples, const NestedPath& path) {
    using T = typename Sequence::value_type;
    const size_t length = samples.front().size();
    for (size_t i = 0; i < samples.size(); ++i) check_length(path, length, i, samples[i].size());
    const std::array<int64_t, 2> sizes{static_cast<int64_t>(samples.size()),
                                       static_cast<int64_t>(length)};
    at::Tensor batch = empty_batch(sizes, c10::CppTypeToScalarType<Element<T>>::value);
    auto* out = static_cast<Element<T>*>(batch.data_ptr());
    for (const Sequence& row : samples) {
      for (const T number : row) *out++ = static_cast<Element<T>>(number);
    }
    return batch;
  }
};

// The entry at `index` of each sample, taken out of it.
template <class Sequence>
auto take_entries(std::vector<Sequence>& samples, size_t index) {
  std::vector<typename Sequence::value_type> entries;
  entries.reserve(samples.size());
  for (Sequence& sample : samples) entries.push_back(std::move(sample[index]));
  return entries;
}

template <Number T>
struct CollateTraits<std::vector<T>> : CollateNumberRows<std::vector<T>> {};
template <Number T, size_t size>
struct CollateTraits<std::array<T, size>> : CollateNumberRows<std::array<T, size>> {};

template <class T>
struct CollateTraits<std::vector<T>> {
  using Result = std::vector<Collated<T>>;
  static Result collate(std::vector<std::vector<T>>&& samples, const NestedPath& path) {
    const size_t length = samples.front().size();
    for (size_t i = 0; i < samples.size(); ++i) check_length(path, length, i, samples[i].size());
    Result batch;
    batch.reserve(length);
    for (size_t i = 0; i < length; ++i) {
      batch.push_back(CollateTraits<T>::collate(
          take_entries(samples, i), NestedPath(path, {.index = static_cast<int64_t>(i)})));
    }
    return batch;
  }
};

template <class T, size_t size>
struct CollateTraits<std::array<T, size>> {
  using Result = std::array<Collated<T>, size>;
  static Result collate(std::vector<std::array<T, size>>&& samples, const NestedPath& path) {
    Result batch;
    for (size_t i = 0; i < size; ++i) {
      batch[i] = CollateTraits<T>::collate(take_entries(samples, i),
                                           NestedPath(path, {.index = static_cast<int64_t>(i)}));
    }
    return batch;
  }
};

template <class T>
struct CollateTraits<std::optional<T>> {
  using Result = std::optional<Collated<T>>;
  static Result collate(std::vector<std::optional<T>>&& samples, const NestedPath& path) {
    std::vector<T> entries;
    for (size_t i = 0; i < samples.size(); ++i) {
      if (samples[i].has_value() != samples.front().has_value()) refuse_optional(path, i);
      if (samples[i]) entries.push_back(std::move(*samples[i]));
    }
    if (entries.empty()) return std::nullopt;
    return CollateTraits<T>::collate(std::move(entries), path);
  }
};

template <class Map, class Output>
struct CollateMap {
  using Result = Output;
  static Result collate(std::vector<Map>&& samples, const NestedPath& path) {
    using T = typename Map::mapped_type;
    Result batch;
    for (const auto& [key, unused] : samples.front()) batch[key];
    for (size_t i = 0; i < samples.size(); ++i) {
      for (const auto& [key, unused] : samples[i]) {
        if (!batch.contains(key)) refuse_keys(path, key, i);
      }
    }
    for (auto& [key, value] : batch) {
      std::vector<T> entries;
      entries.reserve(samples.size());
      for (size_t i = 0; i < samples.size(); ++i) {
        const auto entry = samples[i].find(key);
        if (entry == samples[i].end()) refuse_keys(path, key, i);
        entries.push_back(std::move(entry->second));
      }
      value = CollateTraits<T>::collate(std::move(entries), NestedPath(path, {.name = key}));
    }
    return batch;
  }
};

template <class T>
struct CollateTraits<std::map<std::string, T>>
    : CollateMap<std::map<std::string, T>, std::map<std::string, Collated<T>>> {};
template <class T>
struct CollateTraits<std::unordered_map<std::string, T>>
    : CollateMap<std::unordered_map<std::string, T>, std::unordered_map<std::string, Collated<T>>> {
};

// Collates the child at place I of each sample; tie() gives references to a sample's children.
template <size_t I, class T, class Tie>
auto collate_child(std::vector<T>& samples, const NestedPath& path, NestedStep step, Tie tie) {
  using Child = std::remove_cvref_t<decltype(std::get<I>(tie(samples.front())))>;
  std::vector<Child> column;
  column.reserve(samples.size());
  for (T& sample : samples) column.push_back(std::move(std::get<I>(tie(sample))));
  return CollateTraits<Child>::collate(std::move(column), NestedPath(path, step));
}

template <class Tuple, class Output>
struct CollateTuple {
  using Result = Output;
  static Result collate(std::vector<Tuple>&& samples, const NestedPath& path) {
    return [&]<size_t... I>(std::index_sequence<I...>) {
      // Braces, so that the children are collated from left to right.
      return Result{collate_child<I>(samples, path, {.index = static_cast<int64_t>(I)},
                                     [](Tuple& sample) -> Tuple& { return sample; })...};
    }
    (std::make_index_sequence<std::tuple_size_v<Tuple>>());
  }
};

template <class... Ts>
struct CollateTraits<std::tuple<Ts...>>
    : CollateTuple<std::tuple<Ts...>, std::tuple<Collated<Ts>...>> {};
template <class First, class Second>
struct CollateTraits<std::pair<First, Second>>
    : CollateTuple<std::pair<First, Second>, std::pair<Collated<First>, Collated<Second>>> {};

// Structs with named fields: field i of the batch is assigned from the collated field i.
template <class T, class Output>
struct CollateFields {
  using Result = Output;
  static Result collate(std::vector<T>&& samples, const NestedPath& path) {
    Result batch{};
    auto fields = FieldsOf<Result>::tie(batch);
    std::string_view names = FieldsOf<T>::names(samples.front());
    [&]<size_t... I>(std::index_sequence<I...>) {
      ((std::get<I>(fields) = collate_child<I>(samples, path, {.name = next_name(names)},
                                               [](T& sample) { return FieldsOf<T>::tie(sample); })),
       ...);
    }
    (std::make_index_sequence<std::tuple_size_v<decltype(fields)>>());
    return batch;
  }
};

template <>
struct CollateTraits<Sample> : CollateFields<Sample, Sample> {};
template <>
struct CollateTraits<UnlabelledBatch> : CollateFields<UnlabelledBatch, UnlabelledBatch> {};
template <class Data, class Target>
struct CollateTraits<torch::data::Example<Data, Target>>
    : CollateFields<torch::data::Example<Data, Target>,
                    torch::data::Example<Collated<Data>, Collated<Target>>> {};
template <class Data>
struct CollateTraits<torch::data::Example<Data, void>>
    : CollateFields<torch::data::Example<Data, void>, torch::data::Example<Collated<Data>, void>> {
};

template <class T>
struct BatchStruct {
  using Type = T;
};
template <class T>
requires requires { typename T::Batch; }
struct BatchStruct<T> {
  using Type = typename T::Batch;
};

template <class... From, class... To>
constexpr bool fields_take(NestedTypes<From...>, NestedTypes<To...>) {
  if constexpr (sizeof...(From) == sizeof...(To)) {
    return (std::is_assignable_v<To&, Collated<From>> && ...);
  } else {
    return false;
  }
}

template <HasFieldsMacro T>
struct CollateTraits<T> : CollateFields<T, typename BatchStruct<T>::Type> {
  using Batch = typename BatchStruct<T>::Type;
  static_assert(HasFields<Batch>,
                "the Batch of a sample with ACCELERATE_FIELDS needs ACCELERATE_FIELDS too");
  static_assert(
      fields_take(typename NestedTraits<T>::Children{}, typename NestedTraits<Batch>::Children{}),
      "a batch of this struct has other types than a sample (a tensor for numbers, a "
      "std::vector<std::string> for strings): name the struct of the batch in the sample, "
      "`using Batch = MyBatch;`, with as many ACCELERATE_FIELDS in the same order");
};

// The class that a Batch<> of collated values inherits from.
template <class C>
struct BatchBase {
  static_assert(std::is_class_v<C> && !std::is_final_v<C>,
                "a collate function must return a tensor or a class that is not final");
  using Type = C;
};
template <>
struct BatchBase<at::Tensor> {
  using Type = UnlabelledBatch;
};
template <class C>
using BatchOf = typename BatchBase<C>::Type;

template <class C>
BatchOf<std::remove_cvref_t<C>> to_batch(C&& collated) {
  if constexpr (std::same_as<std::remove_cvref_t<C>, at::Tensor>) {
    return {.data = std::forward<C>(collated)};
  } else {
    return std::forward<C>(collated);
  }
}

}  // namespace accelerate::detail
