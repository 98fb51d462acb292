// The strategy that a configuration asks for, as options of an accelerator.
#pragma once

#include "accelerate/options.h"
#include "config/sharding/sharding_request.h"

namespace accelerate {

// Puts what `request` asks for into `options.strategy` and `options.ddp`. A strategy that the
// program names must be the same one; what it leaves at its default takes the value of the request.
// Throws ConfigError that names both places where they differ.
void configure_strategy(const config::ShardingRequest& request, AcceleratorOptions& options);

}  // namespace accelerate
