// "Did you mean": the known word nearest to a mistyped one.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace accelerate {

// The element of `known` that `word` most resembles, or "" if none is close enough to be meant. How
// far it may be away grows with the word, unless `most_edits` says it.
std::string nearest_name(std::string_view word, const std::vector<std::string>& known,
                         std::optional<size_t> most_edits = std::nullopt);

}  // namespace accelerate
