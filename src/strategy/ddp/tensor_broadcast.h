// Copies of the tensors of one rank on all others.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "compat/c10d.h"

namespace accelerate {

// Overwrites `tensors` with those of rank `source`, in few messages. Those that are undefined or
// empty are left out. Same tensors on all ranks. Collective; blocks for tensors of the CPU.
void broadcast_tensors(const c10::intrusive_ptr<c10d::ProcessGroup>& group,
                       const std::vector<at::Tensor>& tensors, int source);

}  // namespace accelerate
