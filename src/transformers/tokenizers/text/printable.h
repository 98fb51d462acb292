// Texts of files in messages.
#pragma once

#include <string>
#include <string_view>

namespace accelerate::tokenizers {

// In quotes, cut to what fits into a message; what is not printable ASCII is written as \xNN.
std::string printable(std::string_view text);

}  // namespace accelerate::tokenizers
