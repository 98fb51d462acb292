// What ZeroOptions and FsdpOptions ask for.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "accelerate/ddp.h"
#include "accelerate/zero.h"
#include "comm/agreement.h"

namespace accelerate {

// Throws UsageError for options that mean nothing, or that this build does not have.
void require_usable_zero(const ZeroOptions& options);

// The same in the names of DDP and ZeRO. Throws UsageError for what does not exist, and for names
// that contradict each other.
std::variant<DdpOptions, ZeroOptions> named_otherwise(const FsdpOptions& options);

// What all ranks must have alike.
std::vector<comm::Fact> facts_of(const ZeroOptions& options);
int64_t bucket_bytes_of(const ZeroOptions& options);

}  // namespace accelerate
