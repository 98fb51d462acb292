// Variables that are meant for this project but are not known to it.
#pragma once

#include <string>
#include <vector>

namespace accelerate::config {

// Throws ConfigError, with the right name, if one of `names` differs from the variable of a setting
// by one or two letters: a setting would be lost in silence. Other unknown names are let pass,
// since they may belong to other programs.
void refuse_mistyped_variables(const std::vector<std::string>& names);

// Those of `names` that are spelled like variables of settings, and are none: such as
// ACCELERATE_RUN_NAME, which a program may read for itself.
std::vector<std::string> variables_without_setting(const std::vector<std::string>& names);

}  // namespace accelerate::config
