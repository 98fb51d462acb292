// What a sharded job keeps on each of its ranks.
#pragma once

#include <string>

#include "config/sharding/sharding_request.h"

namespace accelerate::cli {

// The bytes that a rank keeps of each parameter under each strategy, with Adam; that of `request`
// is marked. `precision` is that of the settings: no, fp16 or bf16.
std::string sharding_text(const config::ShardingRequest& request, int ranks,
                          const std::string& precision);

}  // namespace accelerate::cli
