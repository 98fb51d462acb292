// The text of a config.json, that of a model, as a tree.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace accelerate::model_config {

// Strict: one object; a key twice, numbers that do not fit into 64 bits, more than 64 levels are
// refused. Whole numbers are signed. Throws DataError that names `where`, also for a pointer of
// git-lfs in place of the file.
nlohmann::json parse_config(std::string_view text, const std::string& where);

}  // namespace accelerate::model_config
