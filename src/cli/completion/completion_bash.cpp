#include "base/word_list.h"
#include "cli/completion/completion_scripts.h"

namespace accelerate::cli {
namespace {

constexpr const char* kBashHead =
    R"sh(# bash completion of accelerate: eval "$(accelerate completion bash)"

)sh";

// Walks over the words before the cursor: which command is it, and does a flag wait for its value?
constexpr const char* kBashTail = R"sh(
_accelerate() {
  local cur=${COMP_WORDS[COMP_CWORD]} path=accelerate pending='' word i
  local commands switches valued arguments choices
  COMPREPLY=()
  _accelerate_command "$path"
  for ((i = 1; i < COMP_CWORD; i++)); do
    word=${COMP_WORDS[i]}
    [[ $word == '=' ]] && continue
    if [[ -n $pending ]]; then
      pending=''
      continue
    fi
    if [[ $word == --?* ]]; then
      word=${word:2}
      word=--${word//-/_}
    fi
    if [[ $word == -* ]]; then
      [[ " $valued " == *" $word "* ]] && pending=$word
    elif [[ " $commands " == *" $word "* ]]; then
      path+=" $word"
      _accelerate_command "$path"
    elif [[ $path == 'accelerate launch' ]]; then
      compopt -o default 2>/dev/null
      return
    fi
  done
  [[ $cur == '=' ]] && cur=''
  if [[ -n $pending ]]; then
    _accelerate_values "$path $pending"
    if [[ $choices == @path ]]; then
      compopt -o filenames 2>/dev/null
      mapfile -t COMPREPLY < <(compgen -f -- "$cur")
    else
      mapfile -t COMPREPLY < <(compgen -W "$choices" -- "$cur")
    fi
  elif [[ $cur == -* ]]; then
    if [[ $cur == --?* ]]; then
      cur=${cur:2}
      cur=--${cur//-/_}
    fi
    mapfile -t COMPREPLY < <(compgen -W "$switches $valued" -- "$cur")
  elif [[ $path == 'accelerate launch' ]]; then
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen -f -- "$cur")
  elif [[ $arguments == @path ]]; then
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen -f -- "$cur")
  else
    mapfile -t COMPREPLY < <(compgen -W "$commands $arguments" -- "$cur")
  fi
}
complete -F _accelerate accelerate
)sh";

void describe_commands(const CommandOutline& command, const std::string& path, std::string& text) {
  std::vector<std::string> commands, switches, valued, arguments;
  for (const CommandOutline& inner : command.commands) commands.push_back(inner.name);
  for (const OptionOutline& option : command.options) {
    if (option.flags.empty()) {
      arguments = option.is_path ? std::vector<std::string>{"@path"} : option.choices;
      continue;
    }
    auto& list = option.placeholder.empty() ? switches : valued;
    list.insert(list.end(), option.flags.begin(), option.flags.end());
  }
  text += "    '" + path + "')\n      commands='" + joined(commands, " ") + "'\n      switches='" +
          joined(switches, " ") + "'\n      valued='" + joined(valued, " ") +
          "'\n      arguments='" + joined(arguments, " ") + "'\n      ;;\n";
  for (const CommandOutline& inner : command.commands) {
    describe_commands(inner, path + " " + inner.name, text);
  }
}

void describe_values(const CommandOutline& command, const std::string& path, std::string& text) {
  for (const OptionOutline& option : command.options) {
    const std::string choices = option.is_path ? "@path" : joined(option.choices, " ");
    if (choices.empty() || option.flags.empty()) continue;
    std::string pattern;
    for (const std::string& flag : option.flags) {
      pattern += (pattern.empty() ? "'" : " | '") + path + " " + flag + "'";
    }
    text += "    " + pattern + ") choices='" + choices + "' ;;\n";
  }
  for (const CommandOutline& inner : command.commands) {
    describe_values(inner, path + " " + inner.name, text);
  }
}

}  // namespace

std::string bash_completion(const CommandOutline& program) {
  std::string commands, values;
  describe_commands(program, program.name, commands);
  describe_values(program, program.name, values);
  return kBashHead + ("_accelerate_command() {\n  case $1 in\n" + commands + "  esac\n}\n\n") +
         "_accelerate_values() {\n  choices=''\n  case $1 in\n" + values + "  esac\n}\n" +
         kBashTail;
}

}  // namespace accelerate::cli
