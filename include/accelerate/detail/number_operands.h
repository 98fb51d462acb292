// Numbers inside a nested value that are reduced as tensors are. Internal: users do not call it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <type_traits>
#include <vector>

#include "accelerate/communicator.h"
#include "accelerate/detail/is_vector.h"
#include "accelerate/detail/operands.h"
#include "accelerate/export.h"

namespace accelerate::detail {

// On the CPU; without dimensions if `alone`.
ACCELERATE_EXPORT at::Tensor tensor_of(const std::vector<double>& numbers, bool alone);
ACCELERATE_EXPORT at::Tensor tensor_of(const std::vector<int64_t>& numbers, bool alone);
ACCELERATE_EXPORT void read_numbers(const at::Tensor& tensor, std::vector<double>& numbers);
ACCELERATE_EXPORT void read_numbers(const at::Tensor& tensor, std::vector<int64_t>& numbers);
[[noreturn]] ACCELERATE_EXPORT void refuse_narrow_result(const Communicator& ranks,
                                                         const OperandNode& node, int64_t result);

template <class T>
inline constexpr bool is_reducible_number = std::is_arithmetic_v<T>;
template <class T>
inline constexpr bool is_reducible_number<std::vector<T>> = std::is_arithmetic_v<T>;

// Whether several ranks could reduce it, whatever number it is.
template <class T>
constexpr bool reduces_alone(ReduceOp op) {
  if constexpr (is_vector<T>) {
    return reduces_alone<typename T::value_type>(op);
  } else if constexpr (!std::is_arithmetic_v<T>) {
    return false;
  } else if constexpr (std::is_floating_point_v<T>) {
    return true;
  } else {
    constexpr bool kFitsWidest = std::is_signed_v<T> || sizeof(T) < sizeof(int64_t);
    return kFitsWidest && op != ReduceOp::kMean;
  }
}

// Numbers and std::vectors of numbers, as tensors of float64 or int64 while they are reduced.
class NumberOperands {
 public:
  NumberOperands(const Communicator& ranks, Operands& operands)
      : ranks_(ranks), operands_(operands) {}

  template <class T>
  void add(const NestedPath& path, T& leaf) {
    if constexpr (std::is_arithmetic_v<T>) {
      add_numbers<T>(path, std::vector<T>{leaf}, true,
                     [&leaf](const std::vector<T>& all) { leaf = all[0]; });
    } else {
      add_numbers<typename T::value_type>(path, leaf, false, [&leaf](const T& all) { leaf = all; });
    }
  }

  // Puts the results where the numbers came from. Throws UsageError, on all ranks alike, if one is
  // too large for its type.
  void finish() const {
    for (const Leaf& leaf : leaves_) leaf.finish(leaf.tensor);
  }

 private:
  struct Leaf {
    at::Tensor tensor;
    std::function<void(const at::Tensor&)> finish;
  };

  template <class T>
  void add_numbers(const NestedPath& path, const std::vector<T>& numbers, bool alone,
                   std::function<void(const std::vector<T>&)> assign) {
    using Wide = std::conditional_t<std::is_floating_point_v<T>, double, int64_t>;
    std::vector<Wide> wide;
    wide.reserve(numbers.size());
    for (const T number : numbers) {
      if constexpr (std::is_unsigned_v<T> && sizeof(T) == sizeof(int64_t)) {
        if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
          operands_.refuse(path, "holds a number of more than 63 bits, which cannot be reduced",
                           "convert it to a floating-point type first");
        }
      }
      wide.push_back(static_cast<Wide>(number));
    }
    Leaf& leaf = leaves_.emplace_back(Leaf{.tensor = tensor_of(wide, alone), .finish = {}});
    operands_.tensor(path, leaf.tensor);
    const size_t node = operands_.nodes.size() - 1;
    leaf.finish = [this, node, assign = std::move(assign)](const at::Tensor& tensor) {
      std::vector<Wide> results;
      read_numbers(tensor, results);
      std::vector<T> narrow;
      narrow.reserve(results.size());
      for (const Wide result : results) narrow.push_back(narrowed<T>(result, node));
      assign(narrow);
    };
  }

  template <class T, class Wide>
  T narrowed(Wide result, size_t node) const {
    if constexpr (std::is_same_v<T, bool>) return result != 0;
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
      using Limits = std::numeric_limits<T>;
      const bool fits = result < 0
                            ? Limits::is_signed && result >= static_cast<int64_t>(Limits::min())
                            : static_cast<uint64_t>(result) <= static_cast<uint64_t>(Limits::max());
      if (!fits) refuse_narrow_result(ranks_, operands_.nodes[node], result);
    }
    return static_cast<T>(result);
  }

  const Communicator& ranks_;
  Operands& operands_;
  std::deque<Leaf> leaves_;  // addresses that stay
};

}  // namespace accelerate::detail
