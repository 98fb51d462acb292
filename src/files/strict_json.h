// The text of a JSON file as a tree, without any leniency.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace accelerate::files {

// How a caller words its errors. Both must throw.
struct JsonRefusals {
  std::function<void(const std::string& complaint)> not_json;   // the text cannot be parsed
  std::function<void(const std::string& what)> not_acceptable;  // it can, but breaks a rule below
};

// Strict: one object; a key twice, numbers that do not fit into 64 bits, more than 64 levels are
// refused. Whole numbers are signed. Does not recurse.
nlohmann::json parse_json_object(std::string_view text, const JsonRefusals& refusals);

}  // namespace accelerate::files
