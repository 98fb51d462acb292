// accelerate to-fsdp2
#pragma once

#include "cli/commands/command.h"

namespace accelerate::cli {

// Rewrites a configuration file for FSDP 2. Never replaces a file unless told to.
Command setup_to_fsdp2(CLI::App& app);

}  // namespace accelerate::cli
