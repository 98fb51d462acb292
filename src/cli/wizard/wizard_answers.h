// Questions whose choices, proposals and limits are those of a setting.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>

#include "cli/wizard/wizard_prompter.h"
#include "config/file_node.h"

namespace accelerate::cli {

// Says what is wrong with an answer that is to be the value of the setting `name`, as
// config::checked_value() does; "" if nothing is.
std::function<std::string(const std::string&)> as_setting(const char* name);

// Values of settings, by name, that the file which is to be replaced has: proposed before all else.
using PresentValues = std::map<std::string, std::string, std::less<>>;

// Whom to ask, and what is proposed.
struct Asking {
  Prompter& prompter;
  const PresentValues& present;
};

// The present value, else the one that the schema has where nobody gives one, else `otherwise`.
std::string proposal_of(const Asking& asking, const char* name, const std::string& otherwise);

// Asks for a value of the setting `name`, proposing as proposal_of(). Throws what the prompter
// throws.
std::string ask_value(const Asking& asking, const std::string& question, const char* name,
                      const std::string& otherwise);

// Lets the person choose one of the choices of the setting `name` but `left_out`, beginning at the
// proposal, else at the first. Throws what the prompter throws.
config::FileNode choose_value(const Asking& asking, const std::string& question, const char* name,
                              const std::string& otherwise = "", const std::string& left_out = "");

// Asks yes or no, for a setting that is one or the other. Proposes the present value, else
// `proposal`, which may differ from what the schema has where nobody is asked; without one as
// ask_value() does.
config::FileNode confirm_value(const Asking& asking, const std::string& question, const char* name,
                               std::optional<bool> proposal = std::nullopt);

}  // namespace accelerate::cli
