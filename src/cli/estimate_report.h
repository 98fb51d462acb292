// A memory estimate as people and programs read it.
#pragma once

#include <string>

#include "estimate/memory_estimate.h"

namespace accelerate::cli {

std::string estimate_text(const estimate::MemoryEstimate& estimate,
                          const estimate::EstimateRequest& request);

// Every figure in bytes.
std::string estimate_json(const estimate::MemoryEstimate& estimate,
                          const estimate::EstimateRequest& request);

// "0 B", "512 B", "84.95 MiB", "1.61 GiB": binary, as GPUs are measured.
std::string memory_text(uint64_t bytes);

}  // namespace accelerate::cli
