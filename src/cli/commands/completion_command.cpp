#include "cli/commands/completion_command.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <map>
#include <memory>
#include <string>

#include "cli/commands/command_outline.h"
#include "cli/completion/completion_scripts.h"
#include "cli/help/help_formatter.h"
#include "cli/help/usage.h"

namespace accelerate::cli {
namespace {

// Shells of their own, no typing errors.
std::map<std::string, std::string> other_shells() {
  std::map<std::string, std::string> hints;
  for (const char* shell : {"ash", "csh", "dash", "ksh", "mksh", "nu", "pwsh", "sh", "tcsh"}) {
    hints[shell] = std::string("there is no completion for ") + shell +
                   "; accelerate launch --help lists the flags";
  }
  return hints;
}

}  // namespace

Command setup_completion(CLI::App& app) {
  auto shell = std::make_shared<std::string>();
  CLI::App* command = add_command(app, "completion", "Print a completion script for a shell",
                                  "accelerate completion bash|zsh|fish");
  command->add_option("shell", *shell, "The shell: bash, zsh or fish")
      ->type_name("bash|zsh|fish")
      ->check(one_of("the shell", {"bash", "zsh", "fish"}, other_shells()))
      ->required();
  command->footer(
      "To have it in every shell:\n"
      "  ~/.bashrc                  eval \"$(accelerate completion bash)\"\n"
      "  ~/.zshrc, after compinit   eval \"$(accelerate completion zsh)\"\n"
      "  config.fish                accelerate completion fish | source");
  return {command, [shell] {
            const CommandOutline program = outline_program();
            const std::string script = *shell == "bash"  ? bash_completion(program)
                                       : *shell == "zsh" ? zsh_completion(program)
                                                         : fish_completion(program);
            std::fwrite(script.data(), 1, script.size(), stdout);
            return 0;
          }};
}

}  // namespace accelerate::cli
