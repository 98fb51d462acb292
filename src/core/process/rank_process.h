// What a process does once before it works as a rank.
#pragma once

#include "accelerate/process_state.h"

namespace accelerate {

// Leaves the stack frames of libtorch out of error messages, and gives the process its share of the
// cores where nobody else has.
void set_up_rank_process(const ProcessState& state);

}  // namespace accelerate
