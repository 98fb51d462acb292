// Sizes that people write with a unit.
#pragma once

#include <cstdint>
#include <string_view>

namespace accelerate::files {

// The size of a shard: "500KB", "10GB", "1.5TB" in decimal units, "2GiB" in binary ones, whatever
// the letter case. Throws UsageError for everything else.
uint64_t parse_shard_size(std::string_view text);

// An amount of memory: GB, MB and KB are decimal, GiB, MiB and KiB binary; a last letter `b` in
// lower case after G, M or K means bits. Throws UsageError for everything else, so also for a
// number without a unit.
uint64_t parse_memory_size(std::string_view text);

}  // namespace accelerate::files
