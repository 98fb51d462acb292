// Questions whose choices, proposals and limits are those of a setting.
#pragma once

#include <functional>
#include <string>

#include "cli/wizard_prompter.h"
#include "config/file_node.h"

namespace accelerate::cli {

// Says what is wrong with an answer that is to be the value of the setting `name`, as
// config::checked_value() does; "" if nothing is.
std::function<std::string(const std::string&)> as_setting(const char* name);

// The value that the schema has where nobody gives one, else `otherwise`.
std::string preset_of(const char* name, const std::string& otherwise);

// Asks for a value of the setting `name`, proposing its preset, else `otherwise`. Throws what the
// prompter throws.
std::string ask_value(Prompter& prompter, const std::string& question, const char* name,
                      const std::string& otherwise);

// Lets the person choose one of the choices of the setting `name` but `left_out`, beginning at its
// preset, else at `otherwise`, else at the first. Throws what the prompter throws.
config::FileNode choose_value(Prompter& prompter, const std::string& question, const char* name,
                              const std::string& otherwise = "", const std::string& left_out = "");

// Asks yes or no, for a setting that is one or the other; proposes as ask_value().
config::FileNode confirm_value(Prompter& prompter, const std::string& question, const char* name,
                               bool otherwise = false);

}  // namespace accelerate::cli
