#include "cli/checkpoint_command.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "accelerate/errors.h"
#include "cli/checkpoint_report.h"
#include "cli/help_formatter.h"
#include "files/checkpoint_directory.h"
#include "files/system_calls.h"

namespace accelerate::cli {
namespace {

using files::CheckpointEntry;

constexpr const char* kFooter =
    R"(DIR is a checkpoint, a folder of checkpoints, or a project folder with a folder `checkpoints` in it.
The exit code is 0 if every checkpoint there is complete, else 1.

Examples:
  accelerate checkpoint list runs/a
  accelerate checkpoint verify runs/a/checkpoints/checkpoint_7
  accelerate checkpoint show runs/a/checkpoints/checkpoint_7 --json
)";

void add_action(CLI::App& checkpoint, const char* name, const std::string& description,
                CheckpointOptions::Action action, CheckpointOptions& options) {
  CLI::App* app = checkpoint.add_subcommand(name, description);
  app->formatter(std::make_shared<HelpFormatter>("accelerate checkpoint " + std::string(name) +
                                                 " DIR [--json]"));
  app->set_help_flag("-h,--help", "Print this help and exit");
  app->add_option("DIR", options.directory, "Checkpoint, or folder of checkpoints")
      ->type_name("")
      ->required();
  app->add_flag("--json", options.json, "Print JSON, for other programs");
  app->callback([&options, action] { options.action = action; });
}

// The checkpoint that `directory` is, as it stands in the list of its folder; or none.
std::vector<CheckpointEntry> entry_of(const std::filesystem::path& directory) {
  std::filesystem::path path = std::filesystem::weakly_canonical(directory);
  if (!path.has_filename()) path = path.parent_path();  // a/b/
  if (!path.has_filename() || !files::leads_to_directory(path.parent_path())) return {};
  for (CheckpointEntry& entry : files::list_checkpoints(path.parent_path())) {
    if (entry.name == path.filename()) return {std::move(entry)};
  }
  return {};
}

// The checkpoints that the user means. Never empty.
std::vector<CheckpointEntry> find_entries(const std::filesystem::path& directory) {
  std::vector<CheckpointEntry> entries = entry_of(directory);
  if (entries.empty()) entries = files::list_checkpoints(directory);
  const std::filesystem::path inner = directory / "checkpoints";
  if (entries.empty() && files::leads_to_directory(inner)) entries = files::list_checkpoints(inner);
  if (entries.empty()) {
    throw CheckpointError({.what = "there is no checkpoint",
                           .where = directory.string(),
                           .hint = "name a checkpoint, or the folder that checkpoints are in"});
  }
  return entries;
}

}  // namespace

CLI::App* setup_checkpoint(CLI::App& app, CheckpointOptions& options) {
  using Action = CheckpointOptions::Action;
  CLI::App* checkpoint = app.add_subcommand("checkpoint", "Look at saved checkpoints");
  checkpoint->formatter(
      std::make_shared<HelpFormatter>("accelerate checkpoint list|verify|show DIR [--json]"));
  checkpoint->set_help_flag("-h,--help", "Print this help and exit");
  checkpoint->footer(kFooter);
  checkpoint->require_subcommand(1);
  add_action(*checkpoint, "list", "Step, size, age and state of each checkpoint", Action::kList,
             options);
  add_action(*checkpoint, "verify", "Read every byte and compare it with the checksums",
             Action::kVerify, options);
  add_action(*checkpoint, "show", "Files and tensors of a checkpoint", Action::kShow, options);
  return checkpoint;
}

int run_checkpoint(const CheckpointOptions& options) {
  const std::vector<CheckpointEntry> entries = find_entries(options.directory);
  CheckpointReport report;
  switch (options.action) {
    case CheckpointOptions::Action::kList:
      report = list_report(entries, options.json);
      break;
    case CheckpointOptions::Action::kVerify:
      report = verify_report(entries, options.json);
      break;
    case CheckpointOptions::Action::kShow:
      report = show_report(entries, options.json);
      break;
  }
  std::fwrite(report.text.data(), 1, report.text.size(), stdout);
  return report.all_complete ? 0 : 1;
}

}  // namespace accelerate::cli
