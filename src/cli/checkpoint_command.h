// accelerate checkpoint list|verify|show
#pragma once

#include "cli/command.h"

namespace accelerate::cli {

Command setup_checkpoint(CLI::App& app);

}  // namespace accelerate::cli
