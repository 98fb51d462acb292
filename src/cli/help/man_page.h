// The manual page.
#pragma once

#include <string>

#include "cli/completion/outline.h"

namespace accelerate::cli {

// accelerate(1) in roff, from the commands and the schema.
std::string man_page(const CommandOutline& program);

}  // namespace accelerate::cli
