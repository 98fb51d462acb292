// Values as the text of JSON and YAML.
#pragma once

#include <string>
#include <string_view>

#include "accelerate/tracker.h"
#include "base/json_quote.h"

namespace accelerate::tracking {

// The shortest number that gives the same double back, with a point or an exponent; "NaN",
// "Infinity" and "-Infinity", in quotes, for what JSON has no number for.
void append_json_number(std::string& json, double number);
void append_json_value(std::string& json, const TrackedValue& value);
// {"name":value,...}, without the braces and with a comma before it unless `json` ends with one of
// "{[,".
void append_json_member(std::string& json, std::string_view name, const TrackedValue& value);
void append_json_key(std::string& json, std::string_view name);
// {"name":value,...}
std::string json_object(const TrackerConfig& values);

// The value as it stands in a cell or a label: 0.5, true, text, {"a":1.0}.
std::string plain_text(const TrackedValue& value);

// A document of YAML as PyYAML writes dictionaries: sorted, a line each.
std::string yaml_document(TrackerConfig values);
// A number as Python's repr() writes it: 2e-05, 1.0, 1e+16.
std::string python_number(double number);

}  // namespace accelerate::tracking
