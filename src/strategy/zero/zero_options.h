// What ZeroOptions and FsdpOptions ask for.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "accelerate/ddp.h"
#include "accelerate/zero.h"
#include "comm/agreement.h"

namespace accelerate {

// Throws UsageError for options that mean nothing, on so many ranks.
void require_usable_zero(const ZeroOptions& options, int world_size);

// The same in the names of DDP and ZeRO, with `local_ranks` on this machine. Throws UsageError for
// names that contradict each other.
std::variant<DdpOptions, ZeroOptions> named_otherwise(const FsdpOptions& options, int local_ranks);

// What all ranks must have alike.
std::vector<comm::Fact> facts_of(const ZeroOptions& options);
int64_t bucket_bytes_of(const ZeroOptions& options);

}  // namespace accelerate
