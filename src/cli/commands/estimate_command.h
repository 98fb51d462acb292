// accelerate estimate-memory
#pragma once

#include "cli/commands/command.h"

namespace accelerate::cli {

// Prints what a model needs, from headers of files or its config.json; reads no weights. Asks
// nvidia-smi for GPUs where there are some, which takes a second at most times.
Command setup_estimate(CLI::App& app);

}  // namespace accelerate::cli
