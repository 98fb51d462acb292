#include "cli/wizard/wizard_answers.h"

#include <algorithm>
#include <vector>

#include "accelerate/errors.h"
#include "config/schema.h"
#include "config/value.h"

namespace accelerate::cli {

using config::FileNode;
using config::Setting;

std::function<std::string(const std::string&)> as_setting(const char* name) {
  return [setting = config::find_setting(name)](const std::string& answer) -> std::string {
    try {
      config::checked_value(*setting, answer, {});
      return "";
    } catch (const ConfigError& error) {
      return error.message();
    }
  };
}

std::string proposal_of(const Asking& asking, const char* name, const std::string& otherwise) {
  const auto present = asking.present.find(name);
  if (present != asking.present.end()) return present->second;
  const Setting& setting = *config::find_setting(name);
  return setting.preset ? std::string(*setting.preset) : otherwise;
}

std::string ask_value(const Asking& asking, const std::string& question, const char* name,
                      const std::string& otherwise) {
  const std::string answer =
      asking.prompter.ask(question, proposal_of(asking, name, otherwise), as_setting(name));
  return config::checked_value(*config::find_setting(name), answer, {});
}

FileNode choose_value(const Asking& asking, const std::string& question, const char* name,
                      const std::string& otherwise, const std::string& left_out) {
  const Setting& setting = *config::find_setting(name);
  std::vector<std::string> options(setting.choices.begin(), setting.choices.end());
  std::erase(options, left_out);
  const auto preset =
      std::find(options.begin(), options.end(), proposal_of(asking, name, otherwise));
  const auto begin = preset == options.end() ? 0 : static_cast<size_t>(preset - options.begin());
  return FileNode::string(options[asking.prompter.choose(question, options, begin)]);
}

FileNode confirm_value(const Asking& asking, const std::string& question, const char* name,
                       std::optional<bool> proposal) {
  const bool is_present = asking.present.count(name) > 0;
  const bool is_proposed = is_present || !proposal
                               ? config::truth_of(proposal_of(asking, name, "")).value_or(false)
                               : *proposal;
  return FileNode::plain(asking.prompter.confirm(question, is_proposed) ? "true" : "false");
}

}  // namespace accelerate::cli
