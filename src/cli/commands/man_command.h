// accelerate man
#pragma once

#include "cli/commands/command.h"

namespace accelerate::cli {

// Prints the manual page accelerate(1) in the language of man; the build installs it.
Command setup_man(CLI::App& app);

}  // namespace accelerate::cli
