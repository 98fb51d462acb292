// The program `accelerate`: reads the command line and hands over to one command.
#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "accelerate/errors.h"
#include "cli/checkpoint_command.h"
#include "cli/env_command.h"
#include "cli/help_formatter.h"
#include "cli/launch_arguments.h"
#include "cli/launch_command.h"
#include "cli/nearest_name.h"
#include "launch/command_line.h"

namespace {

using accelerate::cli::CheckpointOptions;
using accelerate::cli::HelpFormatter;
using accelerate::cli::LaunchArguments;
using accelerate::cli::LaunchOptions;

constexpr int kUsageExitCode = 2;

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
  const std::string nearest = accelerate::cli::nearest_name(word, commands);
  throw accelerate::UsageError(
      {.what = "accelerate has no command " + word,
       .hint = nearest.empty() ? "accelerate --help" : "accelerate " + nearest});
}

int run(std::vector<std::string> arguments) {
  CLI::App app("Train libtorch models on any number of devices.");
  app.formatter(std::make_shared<HelpFormatter>("accelerate command [flags]"));
  app.set_help_flag("-h,--help", "Print this help and exit");
  app.set_version_flag("--version", "accelerate " ACCELERATE_VERSION, "Print the version and exit");
  app.footer("accelerate command --help tells more about a command.");
  LaunchOptions launch_options;
  CLI::App* launch = accelerate::cli::setup_launch(app, launch_options);
  CheckpointOptions checkpoint_options;
  CLI::App* checkpoint = accelerate::cli::setup_checkpoint(app, checkpoint_options);
  CLI::App* env = accelerate::cli::setup_env(app);

  if (arguments.empty()) arguments = {"--help"};
  refuse_unknown_command(app, arguments.front());
  if (arguments.front() == launch->get_name()) {
    LaunchArguments split =
        accelerate::cli::split_launch_arguments(*launch, {arguments.begin() + 1, arguments.end()});
    launch_options.program = std::move(split.program);
    launch_options.program_arguments = std::move(split.program_arguments);
    arguments = std::move(split.flags);
    arguments.insert(arguments.begin(), launch->get_name());
  }
  try {
    std::reverse(arguments.begin(), arguments.end());  // the order in which CLI11 takes a vector
    app.parse(arguments);
  } catch (const CLI::Success& request) {  // help or version
    return app.exit(request);
  } catch (const CLI::ParseError& error) {
    const CLI::App& command = launch->parsed()       ? *launch
                              : checkpoint->parsed() ? *checkpoint
                              : env->parsed()        ? *env
                                                     : app;
    const std::string name = &command == &app ? "" : " " + command.get_name();
    throw accelerate::UsageError({.what = error.what(), .hint = "accelerate" + name + " --help"});
  }
  if (launch->parsed()) return accelerate::cli::run_launch(launch_options);
  if (checkpoint->parsed()) return accelerate::cli::run_checkpoint(checkpoint_options);
  return accelerate::cli::run_env();
}

}  // namespace

int main(int argc, char** argv) {
  open_standard_streams();
  try {
    return run({argv + 1, argv + argc});
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
