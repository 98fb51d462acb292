// Operations on nested values: everything built from tensors, numbers and strings with
//   std::pair, std::tuple, std::array, std::vector, std::optional,
//   std::map<std::string, T>, std::unordered_map<std::string, T>,
//   torch::data::Example, accelerate::Sample, accelerate::Batch,
//   and structs that name their fields with ACCELERATE_FIELDS.
// A std::vector of numbers or strings has one entry per row of the batch; a lone number or string
// is the same for all rows.
//
//   struct Tokens {
//     at::Tensor input_ids{};
//     std::vector<std::string> text{};
//     ACCELERATE_FIELDS(input_ids, text)
//   };
//   Tokens head = accelerate::slice_rows(tokens, 0, 8);
//
// Nothing here talks to other ranks. Tensors are visited in a fixed order: that of the fields,
// entries and sorted keys, which is the same on all ranks.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "accelerate/detail/nested_traits.h"
#include "accelerate/export.h"

namespace accelerate {

template <class V>
inline constexpr bool is_nested = detail::nested<V>();

template <class V>
concept Nested = is_nested<std::remove_cvref_t<V>>;

namespace detail {

// Calls node(path, value) for `value` and all that is in it, each structure before its children,
// which are looked for after the call: it may reshape the structure.
template <class V, class Node>
void walk(V& value, Node& node, const NestedPath& path = {}) {
  using Traits = NestedTraits<std::remove_const_t<V>>;
  node(path, value);
  if constexpr (Traits::kKind == NestedKind::kStructure) {
    Traits::children(
        value, [&](NestedStep step, auto& child) { walk(child, node, NestedPath(path, step)); });
  }
}

template <class T>
inline constexpr NestedKind kKindOf = NestedTraits<std::remove_const_t<T>>::kKind;

// One leaf each; `path` is for the message. All throw DataError.
ACCELERATE_EXPORT at::Tensor slice_tensor(const NestedPath& path, const at::Tensor& tensor,
                                          int64_t first, int64_t last);
ACCELERATE_EXPORT at::Tensor join_tensors(const NestedPath& path,
                                          const std::vector<at::Tensor>& parts);
[[noreturn]] ACCELERATE_EXPORT void refuse_to_cut(const NestedPath& path);
[[noreturn]] ACCELERATE_EXPORT void refuse_to_join(const NestedPath& path, size_t part);
ACCELERATE_EXPORT void check_same_shape(const NestedPath& path, const NestedShape& first,
                                        size_t part, const NestedShape& other);
ACCELERATE_EXPORT void check_parts(size_t parts);
ACCELERATE_EXPORT at::Tensor to_device(const at::Tensor& tensor, c10::Device device,
                                       bool non_blocking);

// The half-open range of `size` entries that Python's [first:last] takes.
struct ACCELERATE_EXPORT RowRange {
  RowRange(int64_t first, int64_t last, size_t size);
  int64_t first;
  int64_t last;
};

// Addresses of all nodes of a value, in the order of walk(). Values of one type whose shapes agree
// have equal types at equal places.
template <class V>
std::vector<const void*> addresses_of(const V& value) {
  std::vector<const void*> addresses;
  auto node = [&](const NestedPath&, const auto& at) { addresses.push_back(&at); };
  walk(value, node);
  return addresses;
}

}  // namespace detail

// Calls the visitor for each leaf:
//   visitor.tensor(path, at::Tensor&)       every tensor, also an undefined one
//   visitor.rows(path, std::vector<T>&)     T: std::string, a number or an enumeration
//   visitor.constant(path, T&)              T: the same
// `path` is a const NestedPath&. The leaves are const if `value` is.
template <Nested V, class Visitor>
void for_each_leaf(V& value, Visitor&& visitor) {
  auto node = [&](const NestedPath& path, auto& leaf) {
    constexpr NestedKind kKind = detail::kKindOf<std::remove_reference_t<decltype(leaf)>>;
    if constexpr (kKind == NestedKind::kTensor) {
      visitor.tensor(path, leaf);
    } else if constexpr (kKind == NestedKind::kRows) {
      visitor.rows(path, leaf);
    } else if constexpr (kKind == NestedKind::kConstant) {
      visitor.constant(path, leaf);
    }
  };
  detail::walk(value, node);
}

// Calls visit(tensor) for each tensor, also an undefined one. The tensors are const if `value` is.
template <Nested V, class Visit>
void for_each_tensor(V& value, Visit&& visit) {
  auto node = [&](const NestedPath&, auto& leaf) {
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(leaf)>, at::Tensor>) visit(leaf);
  };
  detail::walk(value, node);
}

// Calls visit(path, tensor) for each tensor; `path` is a std::string_view such as `[2].input_ids`,
// empty if the value is the tensor.
template <Nested V, class Visit>
void for_each_tensor_with_path(V& value, Visit&& visit) {
  auto node = [&](const NestedPath& path, auto& leaf) {
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(leaf)>, at::Tensor>) {
      visit(std::string_view(path.str()), leaf);
    }
  };
  detail::walk(value, node);
}

// A copy of `value` with fn(tensor) in the place of each tensor.
template <Nested V, class Fn>
[[nodiscard]] V map_tensors(const V& value, Fn&& fn) {
  V result = value;
  for_each_tensor(result, [&](at::Tensor& tensor) { tensor = fn(std::as_const(tensor)); });
  return result;
}

// The rows of a batch: the first dimension of the first tensor that has one, or the entries of the
// first row leaf, whichever comes first. Nothing if there is neither.
template <Nested V>
[[nodiscard]] std::optional<int64_t> find_batch_size(const V& value) {
  std::optional<int64_t> size;
  auto node = [&](const NestedPath&, const auto& leaf) {
    constexpr NestedKind kKind = detail::kKindOf<std::remove_reference_t<decltype(leaf)>>;
    if (size) return;
    if constexpr (kKind == NestedKind::kTensor) {
      if (leaf.defined() && leaf.dim() > 0) size = leaf.size(0);
    } else if constexpr (kKind == NestedKind::kRows) {
      size = static_cast<int64_t>(leaf.size());
    }
  };
  detail::walk(value, node);
  return size;
}

// The rows first..last-1 of every tensor and row leaf, clamped as Python slices are. Tensors of
// the result are views of those of `value`; undefined ones stay undefined. Throws DataError for a
// lone number or string and for a tensor without dimensions: they have no rows.
template <Nested V>
[[nodiscard]] V slice_rows(const V& value, int64_t first, int64_t last) {
  V result = value;
  auto node = [&](const NestedPath& path, auto& leaf) {
    constexpr NestedKind kKind = detail::kKindOf<std::remove_reference_t<decltype(leaf)>>;
    if constexpr (kKind == NestedKind::kTensor) {
      leaf = detail::slice_tensor(path, leaf, first, last);
    } else if constexpr (kKind == NestedKind::kRows) {
      const detail::RowRange range(first, last, leaf.size());
      leaf.erase(leaf.begin() + range.last, leaf.end());
      leaf.erase(leaf.begin(), leaf.begin() + range.first);
    } else if constexpr (kKind == NestedKind::kConstant) {
      detail::refuse_to_cut(path);
    }
  };
  detail::walk(result, node);
  return result;
}

// All parts as one value: tensors and row leaves joined along the rows. Throws DataError, naming
// the place, if there is no part, or if parts differ in what must be equal: keys, lengths,
// optionals that are set, tensors' dtypes, devices and shapes but for the rows, lone numbers and
// strings. The position of a Batch in the pass comes from the first part.
template <Nested V>
[[nodiscard]] V concatenate(const std::vector<V>& parts) {
  detail::check_parts(parts.size());
  std::vector<std::vector<const void*>> others;
  others.reserve(parts.size() - 1);
  for (auto part = std::next(parts.begin()); part != parts.end(); ++part) {
    others.push_back(detail::addresses_of(*part));
  }
  V result = parts.front();
  size_t place = 0;
  auto node = [&](const NestedPath& path, auto& value) {
    using T = std::remove_reference_t<decltype(value)>;
    const auto other = [&](size_t part) -> const T& {
      return *static_cast<const T*>(others[part][place]);
    };
    if constexpr (detail::kKindOf<T> == NestedKind::kTensor) {
      std::vector<at::Tensor> tensors{value};
      tensors.reserve(parts.size());
      for (size_t part = 0; part < others.size(); ++part) tensors.push_back(other(part));
      value = detail::join_tensors(path, tensors);
    } else if constexpr (detail::kKindOf<T> == NestedKind::kRows) {
      for (size_t part = 0; part < others.size(); ++part) {
        value.insert(value.end(), other(part).begin(), other(part).end());
      }
    } else if constexpr (detail::kKindOf<T> == NestedKind::kConstant) {
      for (size_t part = 0; part < others.size(); ++part) {
        if (!(value == other(part))) detail::refuse_to_join(path, part + 1);
      }
    } else if constexpr (detail::HasShape<T>) {
      const NestedShape shape = NestedTraits<T>::shape(value);
      for (size_t part = 0; part < others.size(); ++part) {
        detail::check_same_shape(path, shape, part + 1, NestedTraits<T>::shape(other(part)));
      }
    }
    ++place;
  };
  detail::walk(result, node);
  return result;
}

// A copy of `value` with its tensors on `device`; those already there are shared.
// With `non_blocking` a copy from pinned memory is queued on the current stream.
template <Nested V>
[[nodiscard]] V send_to_device(const V& value, c10::Device device, bool non_blocking = false) {
  return map_tensors(value, [&](const at::Tensor& tensor) {
    return detail::to_device(tensor, device, non_blocking);
  });
}

}  // namespace accelerate
