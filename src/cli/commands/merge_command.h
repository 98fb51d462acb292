// accelerate merge-weights
#pragma once

#include "cli/commands/command.h"

namespace accelerate::cli {

// Makes one file of the shards of a model, or of the pieces in a saved state. Blocks while it
// writes, at the speed of the disk.
Command setup_merge(CLI::App& app);

}  // namespace accelerate::cli
