// The program `accelerate`: reads the command line and hands over to one command.
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include "accelerate/errors.h"
#include "cli/commands.h"
#include "cli/launch_command.h"
#include "cli/usage.h"
#include "cli/wizard_prompter.h"
#include "config/nearest_name.h"
#include "launch/command_line.h"
#include "launch/job.h"

namespace {

using accelerate::cli::Command;

constexpr int kUsageExitCode = 2;
constexpr int kSignalExitCode = 128;  // and the signal, as a shell says it

// A process may be started with its streams closed; files opened later would then take their
// numbers, and output would go there.
void open_standard_streams() {
  int fd = 0;
  do {
    fd = open("/dev/null", O_RDWR);
  } while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd >= 0) close(fd);
}

void print_error(const accelerate::Error& error) {
  std::string text = "error: " + error.message() + "\n";
  if (!error.where().empty()) text += "  at   " + error.where() + "\n";
  if (!error.hint().empty()) text += "  try  " + error.hint() + "\n";
  std::fwrite(text.data(), 1, text.size(), stderr);
}

void refuse_unknown_command(const CLI::App& app, const std::string& word) {
  if (word.starts_with("-")) return;
  std::vector<std::string> commands;
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    commands.push_back(command->get_name());
  }
  if (std::find(commands.begin(), commands.end(), word) != commands.end()) return;
  const std::string nearest = accelerate::config::nearest_name(word, commands);
  throw accelerate::UsageError(
      {.what = "accelerate has no command " + word,
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

int run(std::vector<std::string> arguments) {
  arguments = with_help_behind(std::move(arguments));
  if (!arguments.empty() && arguments.front() == "launch") {
    return accelerate::cli::run_launch({arguments.begin() + 1, arguments.end()});
  }
  // Started by ssh or srun on another machine, not by people: no help speaks of it.
  if (arguments.size() == 2 && arguments.front() == "node-agent") {
    return accelerate::launch::run_node_agent(arguments.back());
  }
  CLI::App app;
  accelerate::cli::setup_program(app);
  const std::vector<Command> commands = accelerate::cli::setup_commands(app);

  if (arguments.empty()) arguments = {"--help"};
  refuse_unknown_command(app, arguments.front());
  try {
    arguments = with_underscores(std::move(arguments));
    std::reverse(arguments.begin(), arguments.end());  // the order in which CLI11 takes a vector
    app.parse(arguments);
  } catch (const CLI::Success& request) {  // help or version
    return app.exit(request);
  } catch (const CLI::ParseError& error) {
    accelerate::cli::refuse_command_line(app, error);
  }
  for (const Command& command : commands) {
    if (command.app->parsed()) return command.run();
  }
  return 0;
}

// As `accelerate ... | head` leaves it when it has seen enough.
bool reader_is_gone() {
  pollfd output{.fd = STDOUT_FILENO, .events = 0, .revents = 0};
  return poll(&output, 1, 0) == 1 && (output.revents & POLLERR) != 0;
}

// A result that cannot be written is work that failed, as on a full disk; that nobody wants the
// rest of it is nothing to speak of.
int with_output_written(int exit_code) {
  std::cout.flush();
  const bool is_written = std::fflush(stdout) == 0 && std::ferror(stdout) == 0 && std::cout.good();
  if (is_written) return exit_code;
  if (reader_is_gone()) return kSignalExitCode + SIGPIPE;
  std::fprintf(stderr, "error: the output cannot be written\n");
  return exit_code == 0 ? 1 : exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  open_standard_streams();
  try {
    return with_output_written(run({argv + 1, argv + argc}));
  } catch (const accelerate::cli::Interrupted& interruption) {
    std::fprintf(stderr, "accelerate config: stopped; nothing was written\n");
    return kSignalExitCode + interruption.signal();
  } catch (const accelerate::launch::ProgramError& error) {
    print_error(error);
    return error.exit_code();
  } catch (const accelerate::UsageError& error) {
    print_error(error);
    return kUsageExitCode;
  } catch (const accelerate::ConfigError& error) {
    print_error(error);
    return kUsageExitCode;
  } catch (const accelerate::Error& error) {
    print_error(error);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
  }
  return 1;
}
