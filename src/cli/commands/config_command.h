// accelerate config
#pragma once

#include "cli/commands/command.h"

namespace accelerate::cli {

// The wizard, and `default`, `update`, `show` and `docs`. A file is written only when all is
// answered, in one step, and never replaced without being told to.
Command setup_config(CLI::App& app);

}  // namespace accelerate::cli
