// accelerate status
#pragma once

#include "cli/commands/command.h"

namespace accelerate::cli {

// Asks the ranks of running jobs what they wait for, and since when. Returns 0 if all of them
// answered, else 1.
Command setup_status(CLI::App& app);

}  // namespace accelerate::cli
