#include "cli/commands.h"

#include <CLI/CLI.hpp>
#include <memory>

#include "cli/checkpoint_command.h"
#include "cli/completion_command.h"
#include "cli/config_command.h"
#include "cli/env_command.h"
#include "cli/estimate_command.h"
#include "cli/help_formatter.h"
#include "cli/man_command.h"
#include "cli/merge_command.h"
#include "cli/test_command.h"
#include "cli/to_fsdp2_command.h"

namespace accelerate::cli {

void setup_program(CLI::App& app) {
  app.name("accelerate");
  app.description("Train libtorch models on any number of devices.");
  app.formatter(std::make_shared<HelpFormatter>("accelerate command [flags]"));
  app.set_help_flag("-h,--help", "Print this help and exit");
  app.set_version_flag("--version", "accelerate " ACCELERATE_VERSION, "Print the version and exit");
  app.footer("accelerate command --help tells more about a command.");
}

std::vector<Command> setup_commands(CLI::App& app) {
  app.add_subcommand("launch", "Start the workers of a training program");
  return {setup_config(app),   setup_test(app),       setup_env(app),
          setup_estimate(app), setup_checkpoint(app), setup_merge(app),
          setup_to_fsdp2(app), setup_completion(app), setup_man(app)};
}

}  // namespace accelerate::cli
