// accelerate completion
#pragma once

#include "cli/commands/command.h"

namespace accelerate::cli {

// Prints the script by which a shell completes the command line of this program.
Command setup_completion(CLI::App& app);

}  // namespace accelerate::cli
