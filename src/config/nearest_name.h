// "Did you mean": the known word nearest to a mistyped one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace accelerate::config {

// The element of `known` that `word` most resembles, or "" if none is close enough to be meant.
std::string nearest_name(std::string_view word, const std::vector<std::string>& known);

}  // namespace accelerate::config
