// Configuration documents as JSON values, for comparisons.
#pragma once

#include <charconv>
#include <nlohmann/json.hpp>
#include <string>

#include "config/config_file.h"
#include "config/file_node.h"

namespace accelerate::test {

inline nlohmann::json json_of(const config::FileNode& node) {
  return nlohmann::json::parse(config::json_text(node));
}

// As if `document` stood in a file.
inline config::ConfigFile interpreted(const nlohmann::json& document) {
  return config::interpret_config(config::parse_config_text(document.dump(2), "config.yaml"),
                                  "config.yaml");
}

}  // namespace accelerate::test
