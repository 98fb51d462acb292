// Splitting a list of inputs (prompts, files, rows) between the ranks.
//
//   std::vector<std::string> prompts{"a", "b", "c", "d", "e"};
//   auto own = accelerate::split_between_processes(state, prompts);  // 2 ranks: a b c, and d e
//
// No communication: all ranks pass the same inputs.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "accelerate/detail/is_vector.h"
#include "accelerate/detail/nested_traits.h"
#include "accelerate/detail/stamped.h"
#include "accelerate/export.h"
#include "accelerate/process_state.h"

namespace accelerate {

struct SplitOptions {
  // Repeat the last input until all ranks have the same number, so that results can be gathered.
  bool apply_padding = false;
};

// The inputs first..last-1, and the very last input `padding` more times.
struct ProcessShare {
  int64_t first = 0;
  int64_t last = 0;
  int64_t padding = 0;
  bool operator==(const ProcessShare&) const = default;
};

// The share of `rank`: consecutive inputs, the first length % world_size ranks have one more.
// Throws UsageError for padding if there is no input to repeat.
ACCELERATE_EXPORT ProcessShare process_share(int64_t length, int rank, int world_size,
                                             SplitOptions options = {});

namespace detail {

template <class V>
inline constexpr bool is_array = false;
template <class T, size_t size>
inline constexpr bool is_array<std::array<T, size>> = true;

template <class V>
constexpr bool splittable();
template <class... Ts>
constexpr bool all_splittable(NestedTypes<Ts...>) {
  return ((splittable<Ts>() || NestedTraits<Ts>::kKind == NestedKind::kConstant) && ...);
}
template <class V>
constexpr bool splittable() {
  if constexpr (std::is_same_v<V, at::Tensor> || is_vector<V>) {
    return true;
  } else if constexpr (NestedTraits<V>::kKind == NestedKind::kStructure && !is_array<V>) {
    return all_splittable(typename NestedTraits<V>::Children{});
  } else {
    return false;
  }
}

// How many inputs a structure holds: the same in each of its lists. Throws UsageError if not.
class ACCELERATE_EXPORT SplitLength {
 public:
  void add(const NestedPath& path, int64_t length);
  void add(const NestedPath& path, const at::Tensor& tensor);
  // Throws UsageError if there was no list at all.
  int64_t value() const;

 private:
  std::optional<int64_t> length_;
  std::string place_;  // of the first list
};

ACCELERATE_EXPORT at::Tensor take_share(const at::Tensor& tensor, const ProcessShare& share);

template <class V>
void find_length(const V& value, SplitLength& length, const NestedPath& path = {}) {
  if constexpr (std::is_same_v<V, at::Tensor>) {
    length.add(path, value);
  } else if constexpr (is_vector<V>) {
    length.add(path, static_cast<int64_t>(value.size()));
  } else if constexpr (NestedTraits<V>::kKind == NestedKind::kStructure) {
    NestedTraits<V>::children(value, [&](NestedStep step, const auto& child) {
      find_length(child, length, NestedPath(path, step));
    });
  }
}

template <class V>
V take_share(const V& value, const ProcessShare& share) {
  if constexpr (is_vector<V>) {
    V result(value.begin() + share.first, value.begin() + share.last);
    if (share.padding > 0) {
      result.insert(result.end(), static_cast<size_t>(share.padding), value.back());
    }
    return result;
  } else if constexpr (NestedTraits<V>::kKind == NestedKind::kStructure) {
    V result = value;
    NestedTraits<V>::children(
        result, [&](NestedStep, auto& child) { child = take_share(std::as_const(child), share); });
    return result;
  } else {
    return value;
  }
}

}  // namespace detail

// What can be split: a std::vector of anything (by entry), a tensor (by row), and structures
// of these in which all lists have the same length: maps from strings, pairs, tuples, structs with
// ACCELERATE_FIELDS. Numbers and strings in a structure go to all ranks.
template <class V>
concept Splittable = detail::splittable<std::remove_cvref_t<V>>();

// This rank's share of `inputs`, see process_share(); with one process all of them, untouched.
// Tensors of the result are views of those of `inputs`, unless they were padded. Throws UsageError
// if the lists of a structure differ in length, or have none.
template <Splittable V>
[[nodiscard]] std::remove_cvref_t<V> split_between_processes(const ProcessState& state, V&& inputs,
                                                             SplitOptions options = {}) {
  if (state.world_size() == 1) return std::forward<V>(inputs);
  const ProcessShare share = detail::stamped(state, [&] {
    detail::SplitLength length;
    detail::find_length(std::as_const(inputs), length);
    return process_share(length.value(), state.rank(), state.world_size(), options);
  });
  return detail::take_share(std::as_const(inputs), share);
}

// What can be called with a share of V.
template <class Use, class V>
concept UsesShareOf = std::invocable<Use, std::add_lvalue_reference_t<std::remove_cvref_t<V>>>;

// Calls use(share) with this rank's share, also an empty one, and returns what it returns, by
// value: the share ends with the call.
template <Splittable V, UsesShareOf<V> Use>
auto split_between_processes(const ProcessState& state, V&& inputs, Use&& use,
                             SplitOptions options = {}) {
  auto share = split_between_processes(state, std::forward<V>(inputs), options);
  return std::invoke(std::forward<Use>(use), share);
}

}  // namespace accelerate
