// From the words of a command line to one command.
#pragma once

#include <string>
#include <vector>

namespace accelerate::cli {

// Runs the command that `arguments`, those of main() without the program's name, ask for, and
// returns its exit code. Throws UsageError for a command line that is wrong.
int run_command_line(std::vector<std::string> arguments);

}  // namespace accelerate::cli
