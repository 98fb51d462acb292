#include "cli/commands/test_command.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "accelerate/errors.h"
#include "cli/commands/launch_command.h"
#include "cli/help/help_formatter.h"
#include "cli/help/launch_arguments.h"
#include "cli/reports/env_libtorch.h"
#include "cli/reports/installation.h"
#include "cli/reports/selftest_program.h"
#include "config/value.h"

namespace accelerate::cli {
namespace {

constexpr const char* kTestFooter =
    R"(The workers are started as accelerate launch would start them, with the same configuration; all
flags of accelerate launch are accepted too (accelerate launch --help). The exit code is 0 if every
check passed.

Examples:
  accelerate test
  accelerate test --config_file cluster.yaml
  accelerate test --cpu --num_processes 4
)";

struct TestOptions {
  std::string config_file;
  bool json = false;
  std::string timeout;
  std::string folder;
};

std::string require_seconds(const std::string& text) {
  const auto seconds = config::whole_number(text);
  if (seconds && *seconds > 0 && std::in_range<int>(*seconds)) return "";
  throw UsageError(
      {.what = "--timeout cannot be '" + text + "': it must be a whole number of seconds",
       .hint = "--timeout 120"});
}

std::string selftest_program() {
  if (const auto program = find_selftest_program()) return program->string();
  throw InstallationError(
      {.what = std::string("the program ") + kSelftestProgram + " is missing",
       .where = own_folder().string(),
       .hint = "it is built and installed together with accelerate: build or install "
               "it again"});
}

// Without it each worker would end with the loader's words.
void require_libtorch() {
  const LibtorchFacts facts = find_libtorch();
  if (!facts.is_asked_of_loader || facts.problem.what.empty()) return;
  throw InstallationError({.what = facts.problem.what, .hint = facts.problem.hint});
}

int run_selftest(const TestOptions& options, const std::vector<std::string>& launch_flags) {
  const LaunchCaller caller{.name = "accelerate test",
                            .takes_program = false,
                            .own_flags = {"--json", "--timeout", "--folder"}};
  const std::string program = parse_launch_arguments(launch_flags, caller).program;
  if (!program.empty()) {
    throw UsageError({.what = "accelerate test runs its own program, not " + program,
                      .hint = "accelerate launch " + program + " runs yours"});
  }
  std::vector<std::string> words = launch_flags;
  if (!options.config_file.empty())
    words.insert(words.end(), {"--config_file", options.config_file});
  words.push_back(selftest_program());
  require_libtorch();
  if (options.json) words.emplace_back("--json");
  if (!options.timeout.empty()) words.insert(words.end(), {"--timeout", options.timeout});
  if (!options.folder.empty()) words.insert(words.end(), {"--folder", options.folder});
  return run_own_program(words);
}

}  // namespace

Command setup_test(CLI::App& app) {
  auto options = std::make_shared<TestOptions>();
  CLI::App* command =
      add_command(app, "test", "Check that the configured processes can train together",
                  "accelerate test [flags] [flags of launch]");
  command->footer(kTestFooter);
  command->allow_extras();
  command
      ->add_option("--config_file", options->config_file,
                   "The configuration to check [the one that accelerate launch uses]")
      ->type_name("PATH");
  command->add_flag("--json", options->json, "Print the results as JSON");
  command
      ->add_option("--timeout", options->timeout,
                   "How many seconds a process waits for another at most [120]")
      ->type_name("SECONDS")
      ->check(CLI::Validator(require_seconds, ""));
  command
      ->add_option("--folder", options->folder,
                   "A folder that all machines see, for the check of checkpoints\n"
                   "[the folder of temporary files; several machines must name one]")
      ->type_name("PATH");
  return {command, [=] { return run_selftest(*options, command->remaining()); }};
}

}  // namespace accelerate::cli
