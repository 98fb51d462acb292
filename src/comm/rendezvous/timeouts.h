// How long ranks wait for each other.
#pragma once

#include "accelerate/communicator.h"
#include "accelerate/process_state.h"

namespace accelerate::comm {

// `options` with both time-outs set: from the options, else from the variables, else the defaults.
// Throws UsageError for one of the options that is not positive, ConfigError for a variable that is
// not a positive number of seconds.
ProcessGroupOptions with_timeouts(ProcessGroupOptions options, const EnvironmentLookup& lookup);

}  // namespace accelerate::comm
