#include "cli/commands/command_outline.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "cli/commands/commands.h"
#include "cli/reports/setting_text.h"
#include "config/schema.h"

namespace accelerate::cli {
namespace {

// A value that is one of few is declared with their names: "bash|zsh|fish".
std::vector<std::string> choices_of(const std::string& type_name) {
  if (type_name.find('|') == std::string::npos) return {};
  return CLI::detail::split(type_name, '|');
}

OptionOutline outline_option(const CLI::Option& option) {
  OptionOutline outline;
  for (const std::string& name : option.get_snames()) outline.flags.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) outline.flags.push_back("--" + name);
  if (outline.flags.empty()) outline.name = option.get_single_name();
  outline.help = option.get_description();
  if (option.get_type_size() != 0) outline.placeholder = option.get_type_name();
  outline.choices = choices_of(outline.placeholder);
  // A word without a flag that is none of few is the name of a file or folder.
  outline.is_path =
      outline.placeholder == "PATH" || (outline.flags.empty() && outline.choices.empty());
  return outline;
}

OptionOutline outline_setting(const config::Setting& setting) {
  OptionOutline outline;
  if (!setting.short_flag.empty()) outline.flags.emplace_back(setting.short_flag);
  outline.flags.push_back(config::flag_of(setting));
  if (!setting.negative_flag.empty()) {
    outline.flags.push_back("--" + std::string(setting.negative_flag));
  }
  outline.help = described(setting);
  // A flag that may stand alone does not take the next word.
  if (setting.alone.empty()) outline.placeholder = config::placeholder_of(setting);
  for (const auto& choice : setting.choices) outline.choices.emplace_back(choice);
  if (setting.kind == config::Kind::kBool) outline.choices = {"true", "false"};
  outline.is_path = setting.kind == config::Kind::kPath;
  outline.group = marked_title(setting.group);
  return outline;
}

bool has_flag(const CommandOutline& command, const std::string& flag) {
  return std::any_of(
      command.options.begin(), command.options.end(), [&](const OptionOutline& option) {
        return std::find(option.flags.begin(), option.flags.end(), flag) != option.flags.end();
      });
}

void add_settings(CommandOutline& command) {
  for (const config::Setting* setting : config::all_settings()) {
    if (!setting->has_flag || has_flag(command, config::flag_of(*setting))) continue;
    command.options.push_back(outline_setting(*setting));
  }
}

void add_launch_flags(CommandOutline& launch) {
  launch.options = {{.flags = {"-h", "--help"}, .help = "Print a help and exit"},
                    {.flags = {"--help_all"}, .help = "Print the help of every flag and exit"}};
  add_settings(launch);
}

CommandOutline outline_command(const CLI::App& app) {
  CommandOutline outline{.name = app.get_name(), .help = app.get_description()};
  for (const CLI::Option* option : app.get_options()) {
    outline.options.push_back(outline_option(*option));
  }
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    outline.commands.push_back(outline_command(*command));
  }
  return outline;
}

}  // namespace

CommandOutline outline_program() {
  CLI::App app;
  setup_program(app);
  setup_commands(app);
  CommandOutline outline = outline_command(app);
  for (CommandOutline& command : outline.commands) {
    if (command.name == "launch") add_launch_flags(command);
    if (command.name == "test") add_settings(command);  // it takes those too
  }
  return outline;
}

}  // namespace accelerate::cli
