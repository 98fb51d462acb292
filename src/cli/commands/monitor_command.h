// accelerate monitor and accelerate top
#pragma once

#include <string>
#include <vector>

#include "cli/commands/command.h"

namespace accelerate::cli {

Command setup_monitor(CLI::App& app);
Command setup_top(CLI::App& app);

// What launchers start beside themselves, see launch/job/run_helper.h. `words`: what follows the
// command. No help speaks of it.
int run_run_recorder(const std::vector<std::string>& words);

}  // namespace accelerate::cli
