// Packed values that go from rank to rank. Internal: users do not call it.
#pragma once

#include <functional>
#include <vector>

#include "accelerate/communicator.h"
#include "accelerate/detail/packed_value.h"
#include "accelerate/export.h"

namespace accelerate::detail {

// What `make` made on every rank, in rank order, or on `from`. A DataError of `make` on one rank is
// a UsageError on all ranks alike. Collective, also by name: ranks that make different calls are
// told so. Needs more than one rank.
ACCELERATE_EXPORT std::vector<PackedValue> gather_packed(Communicator& ranks, const char* operation,
                                                         const std::function<PackedValue()>& make);
ACCELERATE_EXPORT PackedValue broadcast_packed(Communicator& ranks, const char* operation, int from,
                                               const std::function<PackedValue()>& make);
// Throws UsageError unless `from` is a rank.
ACCELERATE_EXPORT void require_rank(Communicator& ranks, const char* operation, int from);

}  // namespace accelerate::detail
