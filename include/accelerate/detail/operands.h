// What an operation over all ranks sees of a nested value. Internal: users do not call it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "accelerate/communicator.h"
#include "accelerate/detail/packed_value.h"
#include "accelerate/export.h"
#include "accelerate/nested.h"

namespace accelerate {
struct PadOptions;
}

namespace accelerate::detail {

// One part of a value in which the ranks must agree.
struct OperandNode {
  std::string path{};  // for messages
  std::string type{};  // dtype and kind of device of a tensor, length or keys of a structure
  std::vector<int64_t> sizes{};  // of a tensor
  bool is_tensor = false;
};

// A number, a string or a std::vector of these.
struct HostLeaf {
  std::function<std::string()> bytes;
  // Makes the leaf what bytes() gave on some ranks, one after the other.
  std::function<void(const std::vector<std::string_view>& parts)> assign;
};

// The parts of one value, in the order of walk(). Points into it: the operations put their results
// there.
struct ACCELERATE_EXPORT Operands {
  // `name` says all in which the calls of the ranks must agree, `where` is for messages.
  Operands(std::string name, std::string where) : name(std::move(name)), where(std::move(where)) {}

  std::string name;
  std::string where;
  std::vector<OperandNode> nodes{};
  std::vector<at::Tensor*> tensors{};  // defined ones
  std::vector<size_t> tensor_nodes{};  // which of `nodes` each is
  std::vector<HostLeaf> host_leaves{};
  // Why this rank cannot take part: all ranks are told before anything else is sent.
  std::string problem{};
  std::string hint{};

  void structure(const NestedPath& path, const NestedShape& shape);
  void tensor(const NestedPath& path, at::Tensor& tensor);
  void host_leaf(const NestedPath& path, HostLeaf leaf);
  // Keeps the first problem. `why` goes on from the name of the place.
  void refuse(const NestedPath& path, const std::string& why, const std::string& what_to_do);
  void refuse(const OperandNode& node, const std::string& why, const std::string& what_to_do);
};

// All collective, and all throw UsageError on all ranks alike, before any data is sent, if the
// values do not fit or one rank has a problem. Tensors of the results own their memory, but for
// those of gather and broadcast, and of reduce without a scale, with one rank.
ACCELERATE_EXPORT void gather_operands(Communicator& ranks, Operands& operands);
ACCELERATE_EXPORT void reduce_operands(Communicator& ranks, Operands& operands, ReduceOp op,
                                       double scale);
ACCELERATE_EXPORT void broadcast_operands(Communicator& ranks, Operands& operands, int from);
ACCELERATE_EXPORT void pad_operands(Communicator& ranks, Operands& operands,
                                    const PadOptions& options);

// Where one rank is all there are its tensors are the results, without a copy: turns one into that,
// and says whether several ranks could have taken it. If not, nothing is done, and the operations
// above say why.
ACCELERATE_EXPORT bool gather_alone(at::Tensor& tensor);
ACCELERATE_EXPORT bool reduce_alone(at::Tensor& tensor, ReduceOp op);
ACCELERATE_EXPORT bool broadcast_alone(at::Tensor& tensor);

// An empty tensor of bytes, for unpack() of what holds no tensor.
ACCELERATE_EXPORT at::Tensor no_bytes();

// Adds a leaf that is sent as pack() writes it and joined if it has rows.
template <class T>
void add_host_leaf(Operands& operands, const NestedPath& path, T& leaf) {
  operands.host_leaf(path, {.bytes = [&leaf] { return pack(leaf).header; },
                            .assign =
                                [&leaf](const std::vector<std::string_view>& parts) {
                                  leaf = T{};
                                  for (const std::string_view part : parts) {
                                    T rows = unpack<T>(part, no_bytes());
                                    if constexpr (kKindOf<T> == NestedKind::kRows) {
                                      leaf.insert(leaf.end(), rows.begin(), rows.end());
                                    } else {
                                      leaf = std::move(rows);
                                    }
                                  }
                                }});
}

// Adds tensors and structures of `value`, and hands other leaves to other(path, leaf).
template <class V, class Other>
void add_operands(Operands& operands, V& value, Other&& other) {
  auto node = [&](const NestedPath& path, auto& part) {
    using T = std::remove_reference_t<decltype(part)>;
    if constexpr (kKindOf<T> == NestedKind::kTensor) {
      operands.tensor(path, part);
    } else if constexpr (HasShape<T>) {
      operands.structure(path, NestedTraits<T>::shape(part));
    } else if constexpr (kKindOf<T> != NestedKind::kStructure) {
      other(path, part);
    }
  };
  walk(value, node);
}

// Whether `value` could be finished with one rank: finish(tensor) for its tensors, finish(leaf) for
// its other leaves. Makes no lists, as add_operands() does: with nothing to send they would be most
// of what a call costs.
template <class V, class Finish>
bool finish_alone(V& value, Finish&& finish) {
  bool done = true;
  auto node = [&](const NestedPath&, auto& part) {
    using T = std::remove_reference_t<decltype(part)>;
    if constexpr (kKindOf<T> == NestedKind::kTensor ||
                  (!HasShape<T> && kKindOf<T> != NestedKind::kStructure)) {
      done = done && finish(part);
    }
  };
  walk(value, node);
  return done;
}

}  // namespace accelerate::detail
