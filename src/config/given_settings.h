// The settings of a sharded run, as whoever reads them without the schema takes them.
#pragma once

#include "config/settings.h"
#include "config/sharding/given_values.h"

namespace accelerate::config {

// What somebody gave, by a flag, a variable or a file; presets are not given. `settings` must
// outlive it.
GivenValues given_settings(const Settings& settings);

}  // namespace accelerate::config
