// What the surroundings of a process ask of it and this build cannot do.
#pragma once

#include <optional>
#include <span>

#include "accelerate/mixed_precision.h"
#include "accelerate/process_state.h"
#include "config/capabilities.h"

namespace accelerate {

// Throws ConfigError that names the variable, and UsageError for the option `precision`, if one of
// them asks for what this build lacks: FSDP must not quietly train as DDP. Every rank that is told
// the same throws the same; nothing is communicated.
void refuse_missing_capabilities(
    const EnvironmentLookup& lookup, const std::optional<MixedPrecision>& precision,
    std::span<const config::CapabilityRow> rows = config::kCapabilities);

}  // namespace accelerate
