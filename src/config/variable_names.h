// Variables that are meant for this project but are not known to it.
#pragma once

#include <string>
#include <vector>

namespace accelerate::config {

// Throws ConfigError, with the right name, if one of `names` differs from the variable of a setting
// by one or two letters: a setting would be lost in silence. Other unknown names are let pass,
// since they may belong to other programs.
void refuse_mistyped_variables(const std::vector<std::string>& names);

}  // namespace accelerate::config
