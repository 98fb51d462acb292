// That the ranks of an operation on nested values are about to do the same, before they do it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "accelerate/communicator.h"
#include "accelerate/detail/operands.h"

namespace accelerate::comm {

// What may differ between the tensors of the ranks. Structure, dtype, kind of device and number of
// dimensions may not.
enum class Fit {
  kExact,  // nothing
  kRows,   // the first dimension
  kSizes,  // all sizes
};

// The sizes of the tensors of all ranks. Points to the operands of this rank.
class AgreedSizes {
 public:
  explicit AgreedSizes(const detail::Operands& own) : own_(&own) {}
  AgreedSizes(const detail::Operands& own, std::vector<std::vector<detail::OperandNode>> all)
      : own_(&own), all_(std::move(all)) {}

  // Whether they are the same on all ranks.
  bool equal() const { return all_.empty(); }
  // Of the tensor with the number `tensor`.
  const std::vector<int64_t>& of(int rank, size_t tensor) const {
    const size_t node = own_->tensor_nodes[tensor];
    return equal() ? own_->nodes[node].sizes : all_[static_cast<size_t>(rank)][node].sizes;
  }

 private:
  const detail::Operands* own_;
  std::vector<std::vector<detail::OperandNode>> all_;  // by rank; empty if they are equal
};

// Collective; blocks. Throws UsageError on all ranks alike if one has a problem, if they call
// different operations, or if their values do not fit; the group goes on. Costs one exchange of a
// few bytes if all is equal, and one more of the descriptions of all values if it is not.
AgreedSizes agree(Communicator& ranks, const detail::Operands& operands, Fit fit);

}  // namespace accelerate::comm
