// What was allocated while it was recorded.
#pragma once

#include <vector>

#include "compat/kineto.h"

namespace accelerate {

// As they happened, on whatever thread.
std::vector<const compat::KinetoRecord*> allocations_in_order(
    const std::vector<compat::KinetoRecord>& records);

}  // namespace accelerate
