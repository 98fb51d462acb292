#include "cli/commands/config_command.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "accelerate/errors.h"
#include "base/terminal_colours.h"
#include "cli/help/config_docs.h"
#include "cli/help/help_formatter.h"
#include "cli/help/usage.h"
#include "cli/wizard/wizard_questions.h"
#include "config/capabilities.h"
#include "config/config_file.h"
#include "config/config_path.h"
#include "config/schema.h"
#include "launch/plan/machine.h"

namespace accelerate::cli {
namespace {

namespace fs = std::filesystem;

struct ConfigOptions {
  std::string config_file;
  std::string mixed_precision = "no";
};

fs::path path_of(const ConfigOptions& options) {
  return options.config_file.empty() ? config::default_config_path()
                                     : fs::path(options.config_file);
}

bool is_present(const fs::path& path) {
  std::error_code no_file;
  return fs::exists(path, no_file);
}

void write_document(const fs::path& path, const config::FileNode& document) {
  config::replace_file(path, config::config_text(document, path));
}

void say_written(const fs::path& path) {
  std::printf("configuration written to %s\n", path.c_str());
}

bool shall_replace(Prompter& prompter, const fs::path& path) {
  while (true) {
    try {
      return prompter.confirm(path.string() + " exists. Replace it?", false);
    } catch (const WentBack&) {
      continue;  // it is the first question
    }
  }
}

// What is proposed where a file is replaced; nothing of one that cannot be read.
PresentValues present_values(const fs::path& path) {
  PresentValues values;
  if (!is_present(path)) return values;
  try {
    for (const config::FileValue& value : config::load_config_file(path).values) {
      values[std::string(value.setting->name)] = value.text;
    }
  } catch (const Error&) {
    return {};  // a reason to replace it
  }
  return values;
}

int run_wizard(const ConfigOptions& options) {
  const fs::path path = path_of(options);
  config::require_writable(path);  // before many questions, not after them
  const auto prompter = make_prompter();
  if (is_present(path) && !shall_replace(*prompter, path)) {
    std::printf("%s was not changed\n", path.c_str());
    return 0;
  }
  const config::FileNode document =
      ask_configuration(*prompter, {.gpus = launch::visible_gpus(),
                                    .cores = launch::available_cores(),
                                    .present = present_values(path)});
  write_document(path, document);
  say_written(path);
  const std::string named = options.config_file.empty() ? "" : " --config_file " + path.string();
  std::printf("next: accelerate test%s\n", named.c_str());
  return 0;
}

int run_default(const ConfigOptions& options) {
  const fs::path path = path_of(options);
  const config::FileNode document =
      config::default_document(options.mixed_precision, launch::visible_gpus());
  if (!is_present(path)) {
    write_document(path, document);
    say_written(path);
    return 0;
  }
  const config::FileNode present = config::complete_document(config::load_config_file(path));
  if (config::yaml_text(present) == config::yaml_text(document)) {
    std::printf("%s already has these settings\n", path.c_str());
    return 0;
  }
  throw ConfigError({.what = "the file exists with other settings and is not replaced",
                     .where = path.string(),
                     .hint = "run accelerate config, which asks before it replaces the file, or "
                             "name another with --config_file"});
}

int run_update(const ConfigOptions& options) {
  const fs::path path = path_of(options);
  const config::ConfigFile file = config::load_config_file(path);
  write_document(path, config::complete_document(file));
  std::printf("configuration updated in %s\n", path.c_str());
  return 0;
}

int run_show(const ConfigOptions& options) {
  const fs::path path = path_of(options);
  if (options.config_file.empty() && !is_present(path)) {
    const std::string text =
        "no configuration file; accelerate config would write " + path.string() + "\n";
    std::fputs(fitted_messages(text, STDOUT_FILENO).c_str(), stdout);
    return 0;
  }
  const config::ConfigFile file = config::load_config_file(path);
  std::printf("# %s\n%s", path.c_str(), config::yaml_text(config::complete_document(file)).c_str());
  return 0;
}

int run_docs() {
  const std::string page = settings_page();
  std::fwrite(page.data(), 1, page.size(), stdout);
  return 0;
}

CLI::App* add_part(CLI::App& config, const std::string& name, const std::string& help,
                   const std::string& flags = "[flags]") {
  CLI::App* part = add_command(config, name, help, "accelerate config " + name + " " + flags);
  return part;
}

void add_config_file(CLI::App& command, ConfigOptions& options) {
  command
      .add_option("--config_file", options.config_file,
                  "The configuration file; JSON if it ends in .json\n"
                  "[accelerate/default_config.yaml in $HF_HOME or ~/.cache/huggingface]")
      ->type_name("PATH");
}

}  // namespace

Command setup_config(CLI::App& app) {
  auto options = std::make_shared<ConfigOptions>();
  CLI::App* config = add_command(app, "config", "Answer questions and write a configuration file",
                                 "accelerate config [flags] [command]");
  add_config_file(*config, *options);

  CLI::App* defaults =
      add_part(*config, "default", "Write a file for this machine, without questions");
  add_config_file(*defaults, *options);
  const auto& precisions = config::find_setting("mixed_precision")->choices;
  std::vector<std::string> names(precisions.begin(), precisions.end());
  if (!is_in_this_build(config::Capability::kFp8)) std::erase(names, "fp8");
  defaults->add_option("--mixed_precision", options->mixed_precision, "Mixed precision [no]")
      ->type_name(CLI::detail::join(names, "|"))
      ->check(one_of("--mixed_precision", names,
                     {{"fp32", "no: without mixed precision everything is computed in fp32"},
                      {"fp8", "bf16: fp8 is not part of this build"}}));
  CLI::App* update = add_part(*config, "update", "Rewrite a file of an older version");
  add_config_file(*update, *options);
  CLI::App* show = add_part(*config, "show", "Print a file as accelerate reads it");
  add_config_file(*show, *options);
  CLI::App* docs = add_part(*config, "docs", "Print the page of all settings, as Markdown", "");

  return {config, [=] {
            if (defaults->parsed()) return run_default(*options);
            if (update->parsed()) return run_update(*options);
            if (show->parsed()) return run_show(*options);
            if (docs->parsed()) return run_docs();
            return run_wizard(*options);
          }};
}

}  // namespace accelerate::cli
