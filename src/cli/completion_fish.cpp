#include "cli/completion_scripts.h"

namespace accelerate::cli {
namespace {

std::string quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') result += '\\';
    result += c == '\n' ? ' ' : c;
  }
  return result + "'";
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

std::string option_line(const std::string& condition, const OptionOutline& option) {
  std::string line = "complete -c accelerate -n " + quoted(condition);
  for (const std::string& flag : option.flags) {
    line += flag.starts_with("--") ? " -l " + flag.substr(2) : " -s " + flag.substr(1);
  }
  if (option.is_path) {
    line += " -r -F";
  } else if (!option.flags.empty() && !option.placeholder.empty()) {
    line += " -x";
  }
  if (!option.choices.empty()) line += " -a " + quoted(joined(option.choices));
  return line + " -d " + quoted(option.help) + "\n";
}

// `condition` holds on the command line of `command`.
void add_command(const CommandOutline& command, const std::string& condition, std::string& script) {
  for (const OptionOutline& option : command.options) script += option_line(condition, option);
  std::vector<std::string> names;
  for (const CommandOutline& inner : command.commands) names.push_back(inner.name);
  for (const CommandOutline& inner : command.commands) {
    script += "complete -c accelerate -n " +
              quoted(condition + "; and not __fish_seen_subcommand_from " + joined(names)) +
              " -f -a " + quoted(inner.name) + " -d " + quoted(inner.help) + "\n";
    add_command(inner, "__fish_seen_subcommand_from " + inner.name, script);
  }
}

}  // namespace

std::string fish_completion(const CommandOutline& program) {
  std::string script = "# fish completion of accelerate: accelerate completion fish | source\n";
  add_command(program, "true", script);
  return script;
}

}  // namespace accelerate::cli
