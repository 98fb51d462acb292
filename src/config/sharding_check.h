// Whether this build can shard as settings ask for.
#pragma once

#include <optional>

#include "config/settings.h"
#include "config/sharding/sharding_request.h"

namespace accelerate::config {

// What settings ask the workers of a native program for; nothing where they switch on neither
// DeepSpeed nor FSDP. Reads the configuration of DeepSpeed that they name. Throws ConfigError that
// names the flag, the variable, the line of the file or the key of that configuration which asks
// for what this build cannot do, or contradicts another one.
std::optional<ShardingRequest> requested_sharding(const Settings& settings);

}  // namespace accelerate::config
