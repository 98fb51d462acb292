// A memory estimate as people and programs read it.
#pragma once

#include <span>
#include <string>

#include "config/capabilities.h"
#include "estimate/memory_estimate.h"

namespace accelerate::cli {

std::string estimate_text(const estimate::MemoryEstimate& estimate,
                          const estimate::EstimateRequest& request);

// Every figure in bytes.
std::string estimate_json(const estimate::MemoryEstimate& estimate,
                          const estimate::EstimateRequest& request);

// Whether `accelerate launch` starts native programs that share memory in this way.
bool is_runnable_strategy(estimate::Sharding sharding,
                          std::span<const config::CapabilityRow> rows = config::kCapabilities);

// "0 B", "512 B", "84.95 MiB", "1.61 GiB": binary, as GPUs are measured.
std::string memory_text(uint64_t bytes);

}  // namespace accelerate::cli
