#include "cli/commands/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "accelerate/errors.h"
#include "base/nearest_name.h"
#include "cli/commands/commands.h"
#include "cli/commands/launch_command.h"
#include "cli/commands/monitor_command.h"
#include "cli/help/usage.h"
#include "launch/job/job.h"
#include "launch/job/run_helper.h"

namespace accelerate::cli {
namespace {

void refuse_unknown_command(const CLI::App& app, const std::string& word) {
  if (word.starts_with("-")) return;
  std::vector<std::string> commands;
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    commands.push_back(command->get_name());
  }
  if (std::find(commands.begin(), commands.end(), word) != commands.end()) return;
  const std::string nearest = nearest_name(word, commands);
  throw UsageError({.what = "accelerate has no command " + word,
                    .hint = nearest.empty() ? "accelerate --help" : "accelerate " + nearest});
}

// In long flags - and _ are the same; all are declared with _.
std::vector<std::string> with_underscores(std::vector<std::string> arguments) {
  for (std::string& argument : arguments) {
    if (!argument.starts_with("--")) continue;
    const size_t end = std::min(argument.find('='), argument.size());
    std::replace(argument.begin() + 2, argument.begin() + static_cast<ptrdiff_t>(end), '-', '_');
  }
  return arguments;
}

// "accelerate -h config show" asks for what "accelerate config show -h" does.
std::vector<std::string> with_help_behind(std::vector<std::string> arguments) {
  const bool begins_with_help = arguments.size() > 1 && !arguments[1].starts_with("-") &&
                                (arguments.front() == "-h" || arguments.front() == "--help");
  if (!begins_with_help) return arguments;
  // What follows launch may be a program, and flags behind that are its own.
  const auto end = arguments[1] == "launch" ? arguments.begin() + 2 : arguments.end();
  std::rotate(arguments.begin(), arguments.begin() + 1, end);
  return arguments;
}

}  // namespace

int run_command_line(std::vector<std::string> arguments) {
  arguments = with_help_behind(std::move(arguments));
  if (!arguments.empty() && arguments.front() == "launch") {
    return run_launch({arguments.begin() + 1, arguments.end()});
  }
  // Started by ssh or srun on another machine, not by people: no help speaks of it.
  if (arguments.size() == 2 && arguments.front() == "node-agent") {
    return launch::run_node_agent(arguments.back());
  }
  if (!arguments.empty() && arguments.front() == launch::kRunHelperCommand) {
    return run_run_recorder({arguments.begin() + 1, arguments.end()});
  }
  CLI::App app;
  setup_program(app);
  const std::vector<Command> commands = setup_commands(app);

  if (arguments.empty()) arguments = {"--help"};
  refuse_unknown_command(app, arguments.front());
  try {
    arguments = with_underscores(std::move(arguments));
    std::reverse(arguments.begin(), arguments.end());  // the order in which CLI11 takes a vector
    app.parse(arguments);
  } catch (const CLI::Success& request) {  // help or version
    return app.exit(request);
  } catch (const CLI::ParseError& error) {
    refuse_command_line(app, error);
  }
  for (const Command& command : commands) {
    if (command.app->parsed()) return command.run();
  }
  return 0;
}

}  // namespace accelerate::cli
