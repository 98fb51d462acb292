// What was allocated while it was recorded.
#pragma once

#include <vector>

#include "compat/kineto.h"

namespace accelerate {

// As they happened, on whatever thread.
std::vector<const compat::KinetoRecord*> allocations_in_order(
    const std::vector<compat::KinetoRecord>& records);

// libtorch goes on counting what is in use on the CPU from one recording to the next: takes away
// what was in use before the first of `records`.
void leave_out_earlier_memory(std::vector<compat::KinetoRecord>& records);

}  // namespace accelerate
