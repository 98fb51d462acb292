#include <algorithm>

#include "base/word_list.h"
#include "cli/completion/completion_scripts.h"

namespace accelerate::cli {
namespace {

// Inside single quotes, and inside the brackets of a specification.
std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '\'') {
      result += "'\\''";
    } else if (c == '[' || c == ']' || c == ':' || c == '\\') {
      result += std::string("\\") + c;
    } else {
      result += c == '\n' ? ' ' : c;
    }
  }
  return result;
}

std::string function_name(const std::string& path) {
  std::string name = "_" + path;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == ' ' || c == '-'; }, '_');
  return name;
}

std::string action_of(const OptionOutline& option) {
  if (option.is_path) return "_files";
  if (option.choices.empty()) return "";
  return "(" + joined(option.choices, " ") + ")";
}

std::string specification(const std::string& flag, const OptionOutline& option) {
  std::string text = "    '" + flag + "[" + escaped(option.help) + "]";
  if (!option.placeholder.empty()) {
    text += ":" + escaped(option.placeholder) + ":" + action_of(option);
  }
  return text + "' \\\n";
}

std::string options_of(const CommandOutline& command) {
  std::string text;
  int place = 0;
  for (const OptionOutline& option : command.options) {
    for (const std::string& flag : option.flags) text += specification(flag, option);
    if (option.flags.empty())
      text += "    '" + std::to_string(++place) + ":" + escaped(option.name) + ":" +
              action_of(option) + "' \\\n";
  }
  return text;
}

void add_function(const CommandOutline& command, const std::string& path, std::string& script) {
  for (const CommandOutline& inner : command.commands) {
    add_function(inner, path + " " + inner.name, script);
  }
  script += "\n" + function_name(path) + "() {\n";
  if (path == "accelerate launch") {
    script += "  _arguments -S -A '-*' \\\n" + options_of(command) +
              "    '1:program:_files' \\\n    '*::argument:_files'\n}\n";
    return;
  }
  if (command.commands.empty()) {
    script += "  _arguments \\\n" + options_of(command) + "    '*: :'\n}\n";
    return;
  }
  script += "  local curcontext=$curcontext state line\n  local -a commands\n  commands=(\n";
  for (const CommandOutline& inner : command.commands) {
    script += "    '" + inner.name + ":" + escaped(inner.help) + "'\n";
  }
  script += "  )\n  _arguments -C \\\n" + options_of(command) +
            "    '1:command:->command' \\\n    '*::argument:->argument'\n  case $state in\n"
            "    command) _describe command commands ;;\n    argument)\n      case $line[1] in\n";
  for (const CommandOutline& inner : command.commands) {
    script += "        " + inner.name + ") " + function_name(path + " " + inner.name) + " ;;\n";
  }
  script += "      esac\n      ;;\n  esac\n}\n";
}

}  // namespace

std::string zsh_completion(const CommandOutline& program) {
  std::string script =
      "#compdef accelerate\n# zsh completion of accelerate: save it as _accelerate in a folder of "
      "$fpath\n";
  add_function(program, program.name, script);
  return script +
         "\nif [[ $funcstack[1] == _accelerate ]]; then\n  _accelerate \"$@\"\nelse\n"
         "  compdef _accelerate accelerate\nfi\n";
}

}  // namespace accelerate::cli
