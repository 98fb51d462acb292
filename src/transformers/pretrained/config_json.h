// The text of a config.json as a tree and back.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace accelerate::transformers {

// Strict: one object; a key twice, numbers that do not fit into 64 bits, more than 64 levels are
// refused. Throws DataError that names `where`.
nlohmann::json parse_config(std::string_view text, const std::string& where);

// The bytes of json.dumps(value, indent=2, sort_keys=True) of Python, and a newline. The keys of
// id2label are whole numbers there, and sorted as such.
std::string python_json(const nlohmann::json& value);

// A value in a message: its text if it is short, else what kind it is.
std::string value_in_message(const nlohmann::json& value);

}  // namespace accelerate::transformers
