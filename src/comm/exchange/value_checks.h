// Why the parts of a nested value cannot go where they are meant to: noted in the operands, so that
// all ranks learn of it before they wait for each other.
#pragma once

#include "accelerate/communicator.h"
#include "accelerate/detail/operands.h"

namespace accelerate::comm {

// Tensors on a device that the group does not serve.
void check_devices(Communicator& ranks, detail::Operands& operands);
// Tensors that cannot be reduced by `op`, or not be multiplied by `scale` then.
void check_reducible(detail::Operands& operands, ReduceOp op, double scale);
// A root that is not a rank.
void check_root(Communicator& ranks, detail::Operands& operands, int root);

}  // namespace accelerate::comm
