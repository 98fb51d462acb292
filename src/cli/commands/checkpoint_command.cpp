#include "cli/commands/checkpoint_command.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "accelerate/errors.h"
#include "cli/help/help_formatter.h"
#include "cli/help/usage.h"
#include "cli/reports/checkpoint_report.h"
#include "cli/reports/print_output.h"
#include "files/durable/system_calls.h"
#include "files/manifest/checkpoint_directory.h"

namespace accelerate::cli {
namespace {

using files::CheckpointEntry;

struct CheckpointOptions {
  enum class Action { kList, kVerify, kShow };
  Action action = Action::kList;
  std::string directory;
  bool json = false;
};

constexpr const char* kCheckpointFooter =
    R"(DIR is a checkpoint, a folder of checkpoints, or a project folder with a folder `checkpoints` in it.
The exit code is 0 if every checkpoint there is complete, else 1.

Examples:
  accelerate checkpoint list runs/a
  accelerate checkpoint verify runs/a/checkpoints/checkpoint_7
  accelerate checkpoint show runs/a/checkpoints/checkpoint_7 --json
)";

void add_action(CLI::App& checkpoint, const char* name, const std::string& description,
                CheckpointOptions::Action action,
                const std::shared_ptr<CheckpointOptions>& options) {
  CLI::App* app = add_command(checkpoint, name, description,
                              "accelerate checkpoint " + std::string(name) + " DIR [--json]");
  app->add_option("DIR", options->directory, "Checkpoint, or folder of checkpoints")
      ->type_name("")
      ->required();
  app->add_flag("--json", options->json, "Print JSON, for other programs");
  app->callback([options, action] { options->action = action; });
}

// The checkpoint that `directory` is, or none.
std::vector<CheckpointEntry> entry_of(const std::filesystem::path& directory) {
  // Without links: a link to a checkpoint has its name and its set-aside twin beside it.
  auto entry = files::look_at_checkpoint(std::filesystem::weakly_canonical(directory));
  if (!entry) return {};
  return {std::move(*entry)};
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

// Prints what is asked for. Returns 0 if every checkpoint it looked at is complete (for verify: and
// all its bytes match), else 1. Throws CheckpointError if there is none, UsageError if there is no
// such folder.
int run_checkpoint_action(const CheckpointOptions& options) {
  require_something_at(options.directory,
                       "name a checkpoint, or the folder that checkpoints are in");
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
  print_output(report.text);
  return report.all_complete ? 0 : 1;
}

}  // namespace

Command setup_checkpoint(CLI::App& app) {
  using Action = CheckpointOptions::Action;
  auto options = std::make_shared<CheckpointOptions>();
  CLI::App* checkpoint = add_command(app, "checkpoint", "Look at saved checkpoints",
                                     "accelerate checkpoint list|verify|show DIR [--json]");
  checkpoint->footer(kCheckpointFooter);
  checkpoint->require_subcommand(1);
  add_action(*checkpoint, "list", "Step, size, age and state of each checkpoint", Action::kList,
             options);
  add_action(*checkpoint, "verify", "Read every byte and compare it with the checksums",
             Action::kVerify, options);
  add_action(*checkpoint, "show", "Files and tensors of a checkpoint", Action::kShow, options);
  return {checkpoint, [options] { return run_checkpoint_action(*options); }};
}

}  // namespace accelerate::cli
