// docs/configuration.md
#pragma once

#include <string>

namespace accelerate::cli {

// The page of all settings as Markdown, made from the schema.
std::string settings_page();

}  // namespace accelerate::cli
