// The text of a tokenizer.json as a tree.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace accelerate::tokenizers {

// Numbers with a fraction are read as the Hugging Face library does, which rounds a second time if
// they have more than 19 digits or so: scores must add up to the same sums. Objects inside of
// objects are refused beyond a depth of 64.
//
// Throws DataError that names `where` if `text` is not valid JSON.
nlohmann::json parse_json(std::string_view text, const std::string& where);

}  // namespace accelerate::tokenizers
