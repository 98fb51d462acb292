// The help of `accelerate launch`, made from the schema.
#pragma once

#include <string>

#include "cli/help/launch_arguments.h"

namespace accelerate::cli {

// kShort names the flags that native programs do not need in a few lines; kAll explains them too.
std::string launch_help(HelpWanted wanted);

}  // namespace accelerate::cli
