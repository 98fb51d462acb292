// accelerate checkpoint list|verify|show
#pragma once

#include "cli/commands/command.h"

namespace accelerate::cli {

Command setup_checkpoint(CLI::App& app);

}  // namespace accelerate::cli
