// accelerate env
#pragma once

#include "cli/commands/command.h"

namespace accelerate::cli {

// Prints what a bug report should say about this machine, this build and the configuration in
// effect, as text or JSON. Takes at most a few seconds, when a program that it asks does not
// answer.
Command setup_env(CLI::App& app);

}  // namespace accelerate::cli
