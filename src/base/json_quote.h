// Texts of JSON. Standard headers only.
#pragma once

#include <string>
#include <string_view>

namespace accelerate {

// Appends `text` in quotes. Bytes that are not valid UTF-8 become U+FFFD.
void append_json_text(std::string& json, std::string_view text);

}  // namespace accelerate
