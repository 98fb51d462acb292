// Errors on the threads of Gloo, which nobody can catch.
#pragma once

#include <memory>

#include "accelerate/communicator.h"

namespace accelerate {

// A rank that makes another call than the others may send more than a peer expects. Gloo finds that
// on a thread of its own, with its locks held, and lets the exception end the program. From here on
// such a program says first which calls the ranks were in, as an uncaught CommError of `ranks`
// would inside of run(), and exits with kErrorExitCode. Other exceptions end the program as before.
// Any number of times; the latest of those that are alive counts.
void report_failures_of_gloo(const std::shared_ptr<Communicator>& ranks);

}  // namespace accelerate
