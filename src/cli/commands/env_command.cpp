#include "cli/commands/env_command.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>

#include "accelerate/errors.h"
#include "base/environment.h"
#include "cli/commands/launch_command.h"
#include "cli/help/help_formatter.h"
#include "cli/reports/env_report.h"
#include "cli/reports/print_output.h"
#include "config/config_path.h"

namespace accelerate::cli {
namespace {

struct EnvOptions {
  bool json = false;
  std::string config_file;
};

// The file, and the variables that count before it. What cannot be used is a fact too.
ConfigurationFacts configuration_facts(const EnvOptions& options) {
  ConfigurationFacts facts{.file = options.config_file.empty()
                                       ? environment_variable("ACCELERATE_CONFIG_FILE").value_or("")
                                       : options.config_file,
                           .if_written = config::default_config_path().string()};
  try {
    const auto file = find_config_file(facts.file);
    if (file) facts.file = file->path.string();
    facts.settings = settings_of_run({}, file ? &*file : nullptr);
  } catch (const ConfigError& error) {
    facts.problem = error.message();
    facts.problem_at = error.where();
  }
  return facts;
}

EnvironmentFacts gather_facts(const EnvOptions& options) {
  return {.version = ACCELERATE_VERSION,
          .built_for = ACCELERATE_LIBTORCH_VERSION,
          .compiler = ACCELERATE_COMPILER,
          .libtorch = find_libtorch(),
          .platform = platform_facts(),
          .processor = processor_facts(),
          .memory = memory_bytes(),
          .gpus = gpu_facts(),
          .gpu_driver = gpu_driver_version(),
          .python = python_facts(),
          .configuration = configuration_facts(options),
          .variables = relevant_variables()};
}

}  // namespace

Command setup_env(CLI::App& app) {
  auto options = std::make_shared<EnvOptions>();
  CLI::App* env = add_command(app, "env", "Print facts about this machine for a bug report",
                              "accelerate env [flags]");
  env->add_flag("--json", options->json, "Print them as JSON, sizes in bytes");
  env->add_option("--config_file", options->config_file,
                  "The configuration file to report [the one that accelerate launch uses]")
      ->type_name("PATH");
  return {env, [options] {
            const EnvironmentFacts facts = gather_facts(*options);
            const std::string text =
                options->json ? environment_json(facts) : environment_text(facts);
            print_output(text);
            // A file that was asked for by name, and cannot be used, is wrong usage.
            const bool is_asked_in_vain =
                !options->config_file.empty() && !facts.configuration.problem.empty();
            return is_asked_in_vain ? 2 : 0;
          }};
}

}  // namespace accelerate::cli
