#include "cli/env_command.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "accelerate/errors.h"
#include "base/environment.h"
#include "cli/env_libtorch.h"
#include "cli/explain_table.h"
#include "cli/help_formatter.h"
#include "cli/launch_command.h"
#include "cli/system_facts.h"
#include "config/config_path.h"

namespace accelerate::cli {
namespace {

using config::FileNode;

struct Options {
  bool json = false;
  std::string config_file;
};

struct Fact {
  std::string name;
  std::vector<std::string> values;  // none: there is none
  bool is_list = false;
};

Fact one(std::string name, std::string value) {
  return {.name = std::move(name), .values = {std::move(value)}};
}

Fact some(std::string name, std::vector<std::string> values) {
  return {.name = std::move(name), .values = std::move(values), .is_list = true};
}

// What accelerate launch would begin with: the file, and the variables that count before it. What
// cannot be used is a fact too.
std::vector<Fact> configuration_facts(const Options& options) {
  const std::string named = options.config_file.empty()
                                ? environment_variable("ACCELERATE_CONFIG_FILE").value_or("")
                                : options.config_file;
  try {
    const auto file = find_config_file(named);
    const std::string place =
        file ? file->path.string() : "none (" + config::default_config_path().string() + ")";
    return {one("configuration", place),
            some("settings", given_settings(settings_of_run({}, file ? &*file : nullptr)))};
  } catch (const ConfigError& error) {
    const std::string place = error.where().empty() ? "" : " at " + error.where();
    return {one("configuration", "cannot be used: " + error.message() + place)};
  }
}

std::vector<Fact> gather_facts(const Options& options) {
  const LibtorchFacts torch = find_libtorch();
  const std::string driver = describe_gpu_driver();
  std::vector<Fact> facts = {
      one("accelerate", ACCELERATE_VERSION),
      one("built with", "libtorch " ACCELERATE_LIBTORCH_VERSION ", " ACCELERATE_COMPILER),
      one("libtorch", torch.folder.empty()
                          ? std::string("not found (at the build: " ACCELERATE_LIBTORCH_DIR ")")
                          : torch.version + (torch.has_cuda ? " with CUDA" : " for CPU") + " at " +
                                torch.folder),
      some("backends", torch.backends),
      one("platform", describe_platform()),
      one("processor", describe_processor()),
      one("memory", describe_memory()),
      some("GPUs", describe_gpus()),
      one("GPU driver", driver.empty() ? "none" : driver),
      one("Python", describe_python())};
  for (Fact& fact : configuration_facts(options)) facts.push_back(std::move(fact));
  facts.push_back(some("variables", relevant_variables()));
  return facts;
}

void print_text(const std::vector<Fact>& facts) {
  for (const Fact& fact : facts) {
    if (fact.values.empty()) std::printf("%-13s none\n", fact.name.c_str());
    for (const std::string& value : fact.values) {
      const bool is_first = &value == &fact.values.front();
      std::printf("%-13s %s\n", is_first ? fact.name.c_str() : "", value.c_str());
    }
  }
}

void print_json(const std::vector<Fact>& facts) {
  FileNode document = FileNode::map();
  for (const Fact& fact : facts) {
    if (!fact.is_list) {
      document.set(fact.name, FileNode::string(fact.values.front()));
      continue;
    }
    FileNode list;
    list.kind = FileNode::Kind::kList;
    for (const std::string& value : fact.values) list.items.push_back(FileNode::string(value));
    document.set(fact.name, std::move(list));
  }
  const std::string text = config::json_text(document);
  std::fwrite(text.data(), 1, text.size(), stdout);
}

}  // namespace

Command setup_env(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* env = app.add_subcommand("env", "Print facts about this machine for a bug report");
  env->formatter(std::make_shared<HelpFormatter>("accelerate env [flags]"));
  env->set_help_flag("-h,--help", "Print this help and exit");
  env->add_flag("--json", options->json, "Print them as JSON");
  env->add_option("--config_file", options->config_file,
                  "The configuration file to look at [that of accelerate launch]")
      ->type_name("PATH");
  return {env, [options] {
            const std::vector<Fact> facts = gather_facts(*options);
            options->json ? print_json(facts) : print_text(facts);
            return 0;
          }};
}

}  // namespace accelerate::cli
