// A tree as the text of a config.json. parse.h is the way back.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace accelerate::model_config {

// The bytes of json.dumps(value, indent=2, sort_keys=True) of Python, and a newline. The keys of
// id2label are whole numbers there, and sorted as such.
std::string python_json(const nlohmann::json& value);

// A value in a message: its text if it is short, else what kind it is.
std::string value_in_message(const nlohmann::json& value);

}  // namespace accelerate::model_config
