// Completion scripts. Each holds all it needs: the program is not run while somebody types.
#pragma once

#include <string>

#include "cli/completion/outline.h"

namespace accelerate::cli {

std::string bash_completion(const CommandOutline& program);
std::string zsh_completion(const CommandOutline& program);
std::string fish_completion(const CommandOutline& program);

}  // namespace accelerate::cli
