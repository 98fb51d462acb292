#include "comm/exchange/value_checks.h"

#include <ATen/ATen.h>

#include <string>

#include "accelerate/errors.h"
#include "comm/groups/communicator_impl.h"
#include "comm/groups/wire.h"

namespace accelerate::comm {

void check_devices(Communicator& ranks, detail::Operands& operands) {
  for (size_t tensor = 0; tensor < operands.tensors.size(); ++tensor) {
    try {
      impl_of(ranks).require_tensor(*operands.tensors[tensor], operands.where.c_str());
    } catch (const UsageError& error) {
      operands.refuse(operands.nodes[operands.tensor_nodes[tensor]],
                      "cannot be sent: " + error.message(), error.hint());
    }
  }
}

void check_reducible(detail::Operands& operands, ReduceOp op, double scale) {
  for (size_t tensor = 0; tensor < operands.tensors.size(); ++tensor) {
    const at::ScalarType dtype = operands.tensors[tensor]->scalar_type();
    const detail::OperandNode& node = operands.nodes[operands.tensor_nodes[tensor]];
    const std::string name = c10::toString(dtype);
    if (!can_be_reduced(dtype)) {
      operands.refuse(node, "is of " + name + ", which can be moved between ranks but not reduced",
                      at::isComplexType(dtype) ? "convert it by at::view_as_real first"
                                               : "convert it to a wider type first");
    } else if (!at::isFloatingType(dtype) && op == ReduceOp::kMean) {
      operands.refuse(node, "is of " + name + ", whose mean has no exact result",
                      "convert it to a floating-point type first, or take the sum");
    } else if (!at::isFloatingType(dtype) && scale != 1.0) {
      operands.refuse(node, "is of " + name + ", which cannot be multiplied by a scale",
                      "convert it to a floating-point type first");
    }
  }
}

void check_root(Communicator& ranks, detail::Operands& operands, int root) {
  if (root >= 0 && root < ranks.world_size()) return;
  operands.problem = "root " + std::to_string(root) + " is not a rank";
  operands.hint = "ranks are 0 to " + std::to_string(ranks.world_size() - 1);
}

}  // namespace accelerate::comm
