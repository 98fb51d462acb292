// Reading environment variables. Standard headers only.
#pragma once

#include <optional>
#include <string>

namespace accelerate {

// The variable, or std::nullopt where it is not set.
std::optional<std::string> environment_variable(const char* name);

// What a flag such as ACCELERATE_USE_CPU=True says: y, yes, t, true, on, 1 or n, no, f, false, off,
// 0, in any case. Throws ConfigError that names the variable for another word.
bool parse_flag(const char* name, const std::string& text);

// The same for a variable of this process; false where it is unset or empty.
bool environment_flag(const char* name);

}  // namespace accelerate
