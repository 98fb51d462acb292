// How a benchmark program says what it saw.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace bench {

// Adds command, machine and torch version to `results`, prints them to standard output and, unless
// `json_file` is empty, writes all of it there. Throws if the file cannot be written.
void publish(nlohmann::json results, int argc, char** argv, const std::string& json_file);

}  // namespace bench
