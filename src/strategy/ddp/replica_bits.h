// Which rank holds other bits than the rest.
#pragma once

#include <cstdint>
#include <functional>

#include "accelerate/communicator.h"
#include "strategy/ddp/replica_digest.h"

namespace accelerate {

// Throws UsageError on all ranks alike if a bit of `values()`, which have the same names on all
// of them, differs between them; what `values` throws on one rank is thrown on all. `updates` were
// made since they were compared last. Names the rank where more than half of the ranks agree
// against it, two ranks otherwise. Collective; reads all values once and waits for their device.
void require_equal_bits(Communicator& ranks, const std::function<NamedValues()>& values,
                        int64_t updates, const char* where);

}  // namespace accelerate
