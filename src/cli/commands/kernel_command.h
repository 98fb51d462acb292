// accelerate kernel
#pragma once

#include "cli/commands/command.h"

namespace accelerate::cli {

// Tells Jupyter about the C++ kernel of this installation, lists such kernels and removes them.
Command setup_kernel(CLI::App& app);

}  // namespace accelerate::cli
