// Tables of settings: who said what.
#pragma once

#include <string>

#include "config/settings.h"

namespace accelerate::cli {

// Every setting, group by group, with its value and the flag, variable or file:line that gave it.
std::string explain_table(const config::Settings& settings);

}  // namespace accelerate::cli
