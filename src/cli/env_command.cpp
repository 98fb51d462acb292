#include "cli/env_command.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "cli/help_formatter.h"
#include "cli/system_facts.h"

namespace accelerate::cli {
namespace {

void print_fact(const char* name, const std::string& value) {
  std::printf("%-13s %s\n", name, value.c_str());
}

void print_facts(const char* name, const std::vector<std::string>& values) {
  if (values.empty()) print_fact(name, "none");
  for (const std::string& value : values) {
    print_fact(&value == &values.front() ? name : "", value);
  }
}

}  // namespace

CLI::App* setup_env(CLI::App& app) {
  CLI::App* env = app.add_subcommand("env", "Print facts about this machine for a bug report");
  env->formatter(std::make_shared<HelpFormatter>("accelerate env"));
  env->set_help_flag("-h,--help", "Print this help and exit");
  return env;
}

int run_env() {
  print_fact("accelerate", ACCELERATE_VERSION);
  print_fact("built with", "libtorch " ACCELERATE_LIBTORCH_VERSION ", " ACCELERATE_COMPILER);
  print_fact("platform", describe_platform());
  print_fact("processor", describe_processor());
  print_fact("memory", describe_memory());
  print_facts("GPUs", describe_gpus());
  const std::string driver = describe_gpu_driver();
  print_fact("GPU driver", driver.empty() ? "none" : driver);
  print_fact("Python", describe_python());
  print_facts("variables", relevant_variables());
  return 0;
}

}  // namespace accelerate::cli
