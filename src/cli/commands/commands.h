// The list of commands.
#pragma once

#include <vector>

#include "cli/commands/command.h"

namespace accelerate::cli {

// Adds every command to `app`, in the order in which help shows them. `launch` reads its command
// line itself (launch_command.h): here it has a name and a description alone.
std::vector<Command> setup_commands(CLI::App& app);

// Sets up the program itself: its description, --help, --version and --cmake_prefix.
void setup_program(CLI::App& app);

}  // namespace accelerate::cli
