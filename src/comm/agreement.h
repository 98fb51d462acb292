// An error of one rank that all ranks must know of before they wait for each other.
#pragma once

#include <functional>

#include "accelerate/communicator.h"

namespace accelerate::comm {

// Runs `check` on every rank. If it throws UsageError on some, throws UsageError on all ranks alike
// that names the first of them and says what is wrong there; the group goes on. Other exceptions
// pass. Collective; costs one small exchange while nothing is wrong.
void check_on_all_ranks(Communicator& communicator, const char* operation,
                        const std::function<void()>& check);

}  // namespace accelerate::comm
