#include "cli/commands/to_fsdp2_command.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include "accelerate/errors.h"
#include "cli/help/help_formatter.h"
#include "config/config_path.h"
#include "config/fsdp2.h"

namespace accelerate::cli {
namespace {

struct ToFsdp2Options {
  std::string config_file;
  std::string output_file;
  bool overwrite = false;
};

int run_conversion(const ToFsdp2Options& options) {
  if (!options.overwrite && options.output_file.empty()) {
    throw UsageError({.what = "no output file is named",
                      .hint = "--output_file new.yaml, or --overwrite to replace the file"});
  }
  const std::string target =
      options.output_file.empty() ? options.config_file : options.output_file;
  std::error_code no_file;
  if (!options.overwrite && std::filesystem::exists(target, no_file)) {
    throw ConfigError({.what = "'" + target + "' exists and is not replaced",
                       .where = "--output_file",
                       .hint = "add --overwrite, or name another file"});
  }
  config::FileNode document = config::read_config_text(options.config_file);
  if (document.kind != config::FileNode::Kind::kMap) {
    throw ConfigError({.what = "the file holds no settings", .where = options.config_file});
  }
  const config::Fsdp2Conversion conversion = config::to_fsdp2(std::move(document));
  for (const std::string& note : conversion.notes) {
    std::fprintf(stderr, "accelerate to-fsdp2: %s\n", note.c_str());
  }
  config::replace_file(target, config::config_text(conversion.document, target));
  std::printf("configuration written to %s\n", target.c_str());
  return 0;
}

}  // namespace

Command setup_to_fsdp2(CLI::App& app) {
  auto options = std::make_shared<ToFsdp2Options>();
  CLI::App* command =
      add_command(app, "to-fsdp2", "Convert a configuration file from FSDP 1 to FSDP 2",
                  "accelerate to-fsdp2 --config_file PATH (--output_file PATH | --overwrite)");
  command->add_option("--config_file", options->config_file, "The file to convert")
      ->type_name("PATH")
      ->required();
  command->add_option("--output_file", options->output_file, "Where the result goes")
      ->type_name("PATH");
  command->add_flag("--overwrite", options->overwrite, "Replace a file that exists");
  return {command, [options] { return run_conversion(*options); }};
}

}  // namespace accelerate::cli
