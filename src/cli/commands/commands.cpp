#include "cli/commands/commands.h"

#include <CLI/CLI.hpp>
#include <memory>

#include "cli/commands/checkpoint_command.h"
#include "cli/commands/completion_command.h"
#include "cli/commands/config_command.h"
#include "cli/commands/env_command.h"
#include "cli/commands/estimate_command.h"
#include "cli/commands/kernel_command.h"
#include "cli/commands/man_command.h"
#include "cli/commands/merge_command.h"
#include "cli/commands/monitor_command.h"
#include "cli/commands/status_command.h"
#include "cli/commands/test_command.h"
#include "cli/commands/to_fsdp2_command.h"
#include "cli/commands/tpu_config_command.h"
#include "cli/commands/trace_command.h"
#include "cli/help/help_formatter.h"
#include "cli/reports/installation.h"

namespace accelerate::cli {

void setup_program(CLI::App& app) {
  app.name("accelerate");
  app.description("Train libtorch models on any number of devices.");
  add_help(app, "accelerate command [flags]");
  app.set_version_flag("--version", "accelerate " ACCELERATE_VERSION, "Print the version and exit");
  app.add_flag_callback(
      "--cmake_prefix",
      [] { throw CLI::CallForVersion(cmake_prefix().string(), 0); },  // printed, with success
      "Print what CMAKE_PREFIX_PATH needs for find_package(Accelerate)");
  app.footer("accelerate command --help tells more about a command.");
}

namespace {

// CLI11 hands footers down, also to commands that have no others below them.
void keep_footer_where_it_applies(CLI::App& app, const std::string& footer) {
  for (CLI::App* command : app.get_subcommands([](CLI::App*) { return true; })) {
    keep_footer_where_it_applies(*command, footer);
    const bool has_commands = !command->get_subcommands([](CLI::App*) { return true; }).empty();
    if (!has_commands && command->get_footer() == footer) command->footer("");
  }
}

}  // namespace

std::vector<Command> setup_commands(CLI::App& app) {
  app.add_subcommand("launch", "Start the workers of a training program");
  std::vector<Command> commands = {setup_status(app),     setup_monitor(app),    setup_top(app),
                                   setup_config(app),     setup_test(app),       setup_env(app),
                                   setup_estimate(app),   setup_checkpoint(app), setup_merge(app),
                                   setup_trace(app),      setup_to_fsdp2(app),   setup_kernel(app),
                                   setup_tpu_config(app), setup_completion(app), setup_man(app)};
  keep_footer_where_it_applies(app, app.get_footer());
  return commands;
}

}  // namespace accelerate::cli
