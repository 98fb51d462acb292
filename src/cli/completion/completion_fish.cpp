#include <set>

#include "base/word_list.h"
#include "cli/completion/completion_scripts.h"

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
  if (!option.choices.empty()) line += " -a " + quoted(joined(option.choices, " "));
  return line + " -d " + quoted(option.help) + "\n";
}

// Those that take the next word, of all commands.
void add_valued_flags(const CommandOutline& command, std::set<std::string>& flags) {
  for (const OptionOutline& option : command.options) {
    if (!option.placeholder.empty()) flags.insert(option.flags.begin(), option.flags.end());
  }
  for (const CommandOutline& inner : command.commands) add_valued_flags(inner, flags);
}

// `path` are the words that lead to `command`.
void add_fish_command(const CommandOutline& command, const std::string& path, std::string& script) {
  // After its program launch knows no flags, and after a command the one before it.
  const bool ends_with_word = !command.commands.empty() || path == "launch";
  const std::string before = ends_with_word ? "__accelerate_at " : "__accelerate_in ";
  for (const OptionOutline& option : command.options) script += option_line(before + path, option);
  for (const CommandOutline& inner : command.commands) {
    script += "complete -c accelerate -n " + quoted("__accelerate_at " + path) + " -f -a " +
              quoted(inner.name) + " -d " + quoted(inner.help) + "\n";
    add_fish_command(inner, path + (path.empty() ? "" : " ") + inner.name, script);
  }
}

constexpr const char* kFunctions = R"fish(
# The words before the cursor that are neither flags nor their values.
function __accelerate_words
    set -l skips no
    for word in (commandline -opc)[2..-1]
        if test $skips = yes
            set skips no
        else if contains -- $word $__accelerate_valued
            set skips yes
        else if not string match -q -- '-*' $word
            echo -- $word
        end
    end
end
# Whether these words are the arguments, with nothing after them.
function __accelerate_at
    set -l words (__accelerate_words)
    test "$words" = "$argv"
end
# Whether they begin with the arguments.
function __accelerate_in
    set -l words (__accelerate_words)
    string match -q -- "$argv *" "$words "
end

)fish";

}  // namespace

std::string fish_completion(const CommandOutline& program) {
  std::set<std::string> valued;
  add_valued_flags(program, valued);
  std::string script =
      "# fish completion of accelerate: accelerate completion fish | source\n"
      "set -g __accelerate_valued " +
      joined(valued, " ") + "\n" + kFunctions;
  add_fish_command(program, "", script);
  return script;
}

}  // namespace accelerate::cli
