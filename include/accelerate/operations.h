// Operations on nested values (see nested.h) over all ranks.
//
//   struct Output {
//     at::Tensor logits{};
//     std::vector<std::string> text{};
//     ACCELERATE_FIELDS(logits, text)
//   };
//   Output everyones = accelerate::gather(ranks, output);
//
// Those that take a Communicator are collective: all its ranks make the same call, in the same
// order, with values of one type. Before any data is sent the ranks compare, by one small exchange,
// what they are about to do: if structure, dtypes, kinds of device or shapes do not match, all
// of them throw the same UsageError, each with its rank, which names the place in the value, the
// ranks and what each of them has; the group stays usable. Then small tensors travel together, in
// one collective for each device; those of 1 MiB and more alone. They block the host for CPU
// tensors; the data of CUDA tensors is queued on the current stream.
//
// Values are unchanged; results have no gradient and own their memory, where not said otherwise.
// Tensors that are undefined on all ranks stay undefined, unless the value is a single tensor.
//
// With one rank nothing is sent or copied: the tensors of the results share the memory of those of
// the value, so clone() what is changed in place later. What several ranks would refuse is refused
// here too.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include <concepts>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "accelerate/autocast.h"
#include "accelerate/batch.h"
#include "accelerate/communicator.h"
#include "accelerate/detail/number_operands.h"
#include "accelerate/detail/object_exchange.h"
#include "accelerate/detail/operands.h"
#include "accelerate/detail/packed_value.h"
#include "accelerate/export.h"
#include "accelerate/nested.h"

namespace accelerate {

// How reduce() brings values together: a ReduceOp or its name, "sum", "mean", "max" or "min"; or
// "none", which leaves them as they are. Other names are a UsageError.
class ACCELERATE_EXPORT Reduction {
 public:
  Reduction(ReduceOp op) : op_(op) {}  // NOLINT(google-explicit-constructor): an argument
  template <std::convertible_to<std::string_view> Name>
  Reduction(const Name& name)  // NOLINT(google-explicit-constructor): an argument
      : op_(parse(name)) {}

  static Reduction none() { return Reduction(std::nullopt); }
  // Nothing for "none".
  std::optional<ReduceOp> op() const { return op_; }
  // Such as "mean".
  std::string name() const;

 private:
  explicit Reduction(std::nullopt_t) {}
  static std::optional<ReduceOp> parse(std::string_view name);

  std::optional<ReduceOp> op_;
};

struct PadOptions {
  int64_t dim = 0;  // counted from the end if negative
  c10::Scalar pad_index = 0;
  bool pad_first = false;  // in front of the rows, not after them
};

namespace detail {

// How many of the leading rows of a leaf belong to real samples of the batch.
ACCELERATE_EXPORT int64_t count_real_rows(int64_t rows, const BatchInfo& batch);
ACCELERATE_EXPORT at::Tensor pad_by_last(const at::Tensor& tensor, int64_t batch_size,
                                         int64_t target, int64_t dim);
ACCELERATE_EXPORT int64_t padded_batch_size(int64_t batch_size, int64_t num_processes);
ACCELERATE_EXPORT at::Tensor leading_rows(const at::Tensor& tensor, int64_t rows);

template <class V>
void keep_real_rows(V& value, const BatchInfo& batch) {
  auto node = [&](const NestedPath&, auto& leaf) {
    constexpr NestedKind kKind = kKindOf<std::remove_reference_t<decltype(leaf)>>;
    if constexpr (kKind == NestedKind::kTensor) {
      if (leaf.defined() && leaf.dim() > 0) {
        leaf = leading_rows(leaf, count_real_rows(leaf.size(0), batch));
      }
    } else if constexpr (kKind == NestedKind::kRows) {
      leaf.resize(static_cast<size_t>(count_real_rows(static_cast<int64_t>(leaf.size()), batch)));
    }
  };
  walk(value, node);
}

// Puts what all ranks have in the place of `value`.
template <class V>
void gather_in_place(Communicator& ranks, V& value, const char* operation) {
  const auto finish = [](auto& leaf) {
    using T = std::remove_reference_t<decltype(leaf)>;
    if constexpr (kKindOf<T> == NestedKind::kTensor) return gather_alone(leaf);
    return kKindOf<T> == NestedKind::kRows;
  };
  if (ranks.world_size() == 1 && finish_alone(value, finish)) return;
  Operands operands(operation, operation);
  add_operands(operands, value, [&](const NestedPath& path, auto& leaf) {
    if constexpr (kKindOf<std::remove_reference_t<decltype(leaf)>> == NestedKind::kRows) {
      add_host_leaf(operands, path, leaf);
    } else {
      operands.refuse(path, "is a lone number or string and has no rows to gather",
                      "make it a tensor or a std::vector, or use gather_object");
    }
  });
  gather_operands(ranks, operands);
}

template <class V>
struct GatheredObjects {
  using Type = std::vector<V>;
};
template <class T>
struct GatheredObjects<std::vector<T>> {
  using Type = std::vector<T>;
};

template <class V>
typename GatheredObjects<V>::Type gather_objects(Communicator& ranks, const V& value,
                                                 const char* operation) {
  constexpr bool kIsList = std::is_same_v<typename GatheredObjects<V>::Type, V>;
  typename GatheredObjects<V>::Type all;
  const auto append = [&](V part) {
    if constexpr (kIsList) {
      all.insert(all.end(), std::make_move_iterator(part.begin()),
                 std::make_move_iterator(part.end()));
    } else {
      all.push_back(std::move(part));
    }
  };
  if (ranks.world_size() == 1) {
    append(value);
    return all;
  }
  for (const PackedValue& part : gather_packed(ranks, operation, [&] { return pack(value); })) {
    append(unpack<V>(part.header, part.bytes));
  }
  return all;
}

}  // namespace detail

// The values of all ranks, one after the other in rank order: tensors along the first dimension, in
// which alone the ranks may differ; std::vectors of numbers or strings entry by entry. A tensor
// without dimensions counts as one row: the result has one entry per rank, also with one rank. A
// lone number or string is a UsageError.
template <Nested V>
[[nodiscard]] V gather(Communicator& ranks, const V& value) {
  V result = value;
  detail::gather_in_place(ranks, result, "gather");
  return result;
}

// gather() without the rows that only evened out the batch: a metric sees every sample once.
// `batch` is the position of the batch that the values were computed from, on this rank; without
// one all rows count. Of each rank's rows, those of the leading `batch.valid` samples are kept:
//   - of a tensor or std::vector with m rows for each of the `batch.size` samples (m = 1, 2, ...;
//     a sample's rows beside each other) the first m * valid;
//   - all of one whose length is not a multiple of the batch's size;
//   - a tensor without dimensions: one value a rank stays one value a rank, even where a rank has
//     no real sample. Weigh it by the number of real samples if that matters.
// A table that is not made of samples, but whose length happens to be a multiple of the batch's
// size, is cut too: use gather() or reduce() for it.
// Several values come back as a tuple, at the cost of one exchange.
template <Nested... Vs>
[[nodiscard]] auto gather_for_metrics(Communicator& ranks, const std::optional<BatchInfo>& batch,
                                      const Vs&... values) {
  static_assert(sizeof...(Vs) > 0, "gather_for_metrics() needs at least one value");
  const auto gathered = [&](auto result) {
    if (batch) detail::keep_real_rows(result, *batch);
    detail::gather_in_place(ranks, result, "gather_for_metrics");
    return result;
  };
  if constexpr (sizeof...(Vs) == 1) {
    return (gathered(Vs(values)), ...);
  } else {
    return gathered(std::tuple<Vs...>(values...));
  }
}

// The reduction of the values of all ranks, which must have equal shapes: of tensors, of numbers
// and of the entries of std::vectors of numbers. Means of integers are a UsageError, and so are
// strings and enumerators and the types that Communicator::all_reduce() refuses; the sum of bools
// is "or". The result is multiplied by `scale`, which integers do not take; it then owns its memory
// with one rank, too. "none" sends nothing and returns the value itself, which shares its tensors.
template <Nested V>
[[nodiscard]] V reduce(Communicator& ranks, const V& value, const Reduction& by = ReduceOp::kSum,
                       double scale = 1.0) {
  V result = value;
  if (!by.op()) return result;
  const auto finish = [op = *by.op()](auto& leaf) {
    using T = std::remove_reference_t<decltype(leaf)>;
    if constexpr (detail::kKindOf<T> == NestedKind::kTensor) {
      return detail::reduce_alone(leaf, op);
    } else {
      return detail::reduces_alone<T>(op);
    }
  };
  if (ranks.world_size() == 1 && scale == 1.0 && detail::finish_alone(result, finish)) {
    return result;
  }
  std::string name = "reduce by " + by.name();
  if (scale != 1.0) name += " times " + std::to_string(scale);
  detail::Operands operands(std::move(name), "reduce");
  detail::NumberOperands numbers(ranks, operands);
  detail::add_operands(operands, result, [&](const NestedPath& path, auto& leaf) {
    using T = std::remove_reference_t<decltype(leaf)>;
    if constexpr (detail::is_reducible_number<T>) {
      numbers.add(path, leaf);
    } else {
      operands.refuse(path, "is not a number and cannot be reduced", "leave it out of the value");
    }
  });
  detail::reduce_operands(ranks, operands, *by.op(), scale);
  numbers.finish();
  return result;
}

// The value of rank `from`. Structure and tensors' shapes must be equal on all ranks; numbers,
// strings and std::vectors of them may be anything. See broadcast_object() for other values.
template <Nested V>
[[nodiscard]] V broadcast(Communicator& ranks, const V& value, int from = 0) {
  V result = value;
  const auto finish = [](auto& leaf) {
    using T = std::remove_reference_t<decltype(leaf)>;
    if constexpr (detail::kKindOf<T> == NestedKind::kTensor) return detail::broadcast_alone(leaf);
    return true;
  };
  if (ranks.world_size() == 1 && from == 0 && detail::finish_alone(result, finish)) return result;
  detail::Operands operands("broadcast from " + std::to_string(from), "broadcast");
  detail::add_operands(operands, result, [&](const NestedPath& path, auto& leaf) {
    detail::add_host_leaf(operands, path, leaf);
  });
  detail::broadcast_operands(ranks, operands, from);
  return result;
}

// The value with each tensor made as long in dimension `dim` as the longest of the ranks' is, so
// that calls which ask for equal shapes take it. Tensors without that dimension, or of that length
// already, stay as they are and are shared with `value`, gradient and all; so do leaves that are
// not tensors. The ranks' tensors may differ in all sizes, but not in the number of dimensions.
template <Nested V>
[[nodiscard]] V pad_across_processes(Communicator& ranks, const V& value,
                                     const PadOptions& options = {}) {
  V result = value;
  detail::Operands operands("pad_across_processes in dimension " + std::to_string(options.dim),
                            "pad_across_processes");
  detail::add_operands(operands, result, [](const NestedPath&, auto&) {});
  detail::pad_operands(ranks, operands, options);
  return result;
}

// The objects of all ranks in rank order: entries of std::vectors one after the other, other values
// as one entry per rank. Objects are nested values that may differ in everything but their type;
// they are copied by way of the CPU, where their tensors arrive. Throws UsageError on all ranks
// alike for a tensor that is not dense. With one rank nothing is copied and tensors are shared.
template <Nested V>
[[nodiscard]] auto gather_object(Communicator& ranks, const V& object) {
  return detail::gather_objects(ranks, object, "gather_object");
}

// gather_object() for objects of the samples of `batch`: of a std::vector with m entries for each
// sample, those of samples that only evened out the batch are left out, as gather_for_metrics()
// does. Other objects are one entry per rank.
template <Nested V>
[[nodiscard]] auto gather_object_for_metrics(Communicator& ranks,
                                             const std::optional<BatchInfo>& batch,
                                             const V& object) {
  using List = typename detail::GatheredObjects<V>::Type;
  if constexpr (std::is_same_v<List, V>) {
    if (batch) {
      V real = object;
      real.resize(static_cast<size_t>(
          detail::count_real_rows(static_cast<int64_t>(object.size()), *batch)));
      return detail::gather_objects(ranks, real, "gather_object_for_metrics");
    }
  }
  return detail::gather_objects(ranks, object, "gather_object_for_metrics");
}

// The object of rank `from`, whatever the others pass. See gather_object() for what it may be.
template <Nested V>
[[nodiscard]] V broadcast_object(Communicator& ranks, const V& object, int from = 0) {
  detail::require_rank(ranks, "broadcast_object", from);
  if (ranks.world_size() == 1) return object;
  const detail::PackedValue packed = detail::broadcast_packed(ranks, "broadcast_object", from,
                                                              [&] { return detail::pack(object); });
  return detail::unpack<V>(packed.header, packed.bytes);
}

// Replaces the objects of `list`, a std::vector or a std::tuple, by those of rank `from`.
template <Nested V>
void broadcast_object_list(Communicator& ranks, V& list, int from = 0) {
  list = broadcast_object(ranks, list, from);
}

// On this rank alone: the value with its batch, the dimension `dim` of all tensors that have
// `batch_size` entries there, made the next multiple of `num_processes` long by repeating the last
// entry; with `dim` 0 also of std::vectors. What is not padded is shared with `value`.
template <Nested V>
[[nodiscard]] V pad_input_tensors(const V& value, int64_t batch_size, int64_t num_processes,
                                  int64_t dim = 0) {
  const int64_t target = detail::padded_batch_size(batch_size, num_processes);
  V result = value;
  if (target == batch_size) return result;
  auto node = [&](const NestedPath&, auto& leaf) {
    constexpr NestedKind kKind = detail::kKindOf<std::remove_reference_t<decltype(leaf)>>;
    if constexpr (kKind == NestedKind::kTensor) {
      leaf = detail::pad_by_last(leaf, batch_size, target, dim);
    } else if constexpr (kKind == NestedKind::kRows) {
      if (dim == 0 && static_cast<int64_t>(leaf.size()) == batch_size) {
        const auto last = leaf.back();
        leaf.resize(static_cast<size_t>(target), last);
      }
    }
  };
  detail::walk(result, node);
  return result;
}

// On this rank alone: the value with its half and bfloat16 tensors as float; gradients flow
// through. Other tensors are shared.
template <Nested V>
[[nodiscard]] V convert_to_fp32(const V& value) {
  return map_tensors(value, [](const at::Tensor& tensor) { return convert_to_fp32(tensor); });
}

}  // namespace accelerate
