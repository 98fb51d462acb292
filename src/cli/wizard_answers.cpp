#include "cli/wizard_answers.h"

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

std::string preset_of(const char* name, const std::string& otherwise) {
  const Setting& setting = *config::find_setting(name);
  return setting.preset ? std::string(*setting.preset) : otherwise;
}

std::string ask_value(Prompter& prompter, const std::string& question, const char* name,
                      const std::string& otherwise) {
  const std::string answer = prompter.ask(question, preset_of(name, otherwise), as_setting(name));
  return config::checked_value(*config::find_setting(name), answer, {});
}

FileNode choose_value(Prompter& prompter, const std::string& question, const char* name,
                      const std::string& otherwise, const std::string& left_out) {
  const Setting& setting = *config::find_setting(name);
  std::vector<std::string> options(setting.choices.begin(), setting.choices.end());
  std::erase(options, left_out);
  const auto preset = std::find(options.begin(), options.end(), preset_of(name, otherwise));
  const auto begin = preset == options.end() ? 0 : static_cast<size_t>(preset - options.begin());
  return FileNode::string(options[prompter.choose(question, options, begin)]);
}

FileNode confirm_value(Prompter& prompter, const std::string& question, const char* name,
                       bool otherwise) {
  const bool proposal =
      config::truth_of(preset_of(name, otherwise ? "true" : "false")).value_or(otherwise);
  return FileNode::plain(prompter.confirm(question, proposal) ? "true" : "false");
}

}  // namespace accelerate::cli
