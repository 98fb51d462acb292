// accelerate trace
#pragma once

#include "cli/commands/command.h"

namespace accelerate::cli {

// Works with the traces that a profile has left. Returns 0.
Command setup_trace(CLI::App& app);

}  // namespace accelerate::cli
