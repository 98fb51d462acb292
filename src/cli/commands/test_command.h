// accelerate test
#pragma once

#include "cli/commands/command.h"

namespace accelerate::cli {

// Runs accelerate-selftest on all workers of the configuration in effect, through accelerate
// launch, whose flags it takes too. Blocks until it has ended; the exit code is that of the job.
Command setup_test(CLI::App& app);

}  // namespace accelerate::cli
