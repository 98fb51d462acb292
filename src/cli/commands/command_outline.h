// All commands and flags of the program, for completion and manual.
#pragma once

#include "cli/completion/outline.h"

namespace accelerate::cli {

// Flags of `launch` come from the schema, those of all other commands from their declaration.
CommandOutline outline_program();

}  // namespace accelerate::cli
