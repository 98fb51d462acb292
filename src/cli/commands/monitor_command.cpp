#include "cli/commands/monitor_command.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "accelerate/errors.h"
#include "base/environment.h"
#include "base/user_folders.h"
#include "cli/help/help_formatter.h"
#include "cli/reports/print_output.h"
#include "monitor/monitor_program.h"
#include "monitor/view/run_folder.h"

namespace accelerate::cli {
namespace {

namespace fs = std::filesystem;

struct MonitorOptions {
  std::string run;
  std::string address;
};

struct TopOptions {
  std::string run;
  bool once = false;
};

constexpr const char* kMonitorFooter =
    R"(RUN is a folder that a run was recorded in, a folder of such folders, or the name of a run in ~/.local/state/accelerate/runs. Without it all runs there can be looked at, the newest first.
The page is for this machine alone. With an address, such as --listen 0.0.0.0:8642, others see it too: they need the token that is printed, or that ACCELERATE_MONITOR_TOKEN holds.

Examples:
  accelerate monitor
  accelerate monitor runs/a --listen 9000
)";

constexpr const char* kTopFooter =
    R"(RUN is a folder that a run was recorded in, or the name of one in ~/.local/state/accelerate/runs; without it the newest there. q ends it.
The exit code is 1 if the run has failed, else 0.

Examples:
  accelerate top
  accelerate top runs/a --once
)";

// The folder to look into: with no name all runs that nobody gave a place.
fs::path folder_of(const std::string& name) {
  if (name.empty()) {
    monitor::find_run("");  // throws if there is none
    return monitor::default_runs_folder();
  }
  // A folder of runs is shown as such.
  const fs::path named = expanded_path(name);
  return monitor::runs_in(named).empty() ? monitor::find_run(name) : named;
}

int run_monitor(const MonitorOptions& options) {
  const std::string where = "--listen";
  const fs::path folder = folder_of(options.run);
  monitor::OpenPage page =
      monitor::open_page(monitor::parse_page_address(options.address, where), where);
  print_output(page.url + "\n");
  std::fflush(stdout);
  return monitor::serve_page(folder, std::move(page));
}

int word_number(const std::string& word) { return std::atoi(word.c_str()); }

}  // namespace

Command setup_monitor(CLI::App& app) {
  auto options = std::make_shared<MonitorOptions>();
  CLI::App* command = add_command(app, "monitor", "Serve a live page of recorded runs",
                                  "accelerate monitor [RUN] [--listen PORT]");
  command->footer(kMonitorFooter);
  command->add_option("RUN", options->run, "Folder or name of a run, or a folder of runs")
      ->type_name("");
  command
      ->add_option("--listen", options->address,
                   "Port, or address:port, of the page [8642 on loopback]")
      ->type_name("PORT");
  return {command, [options] { return run_monitor(*options); }};
}

Command setup_top(CLI::App& app) {
  auto options = std::make_shared<TopOptions>();
  CLI::App* command = add_command(app, "top", "Show a recorded run in the terminal, live",
                                  "accelerate top [RUN] [--once]");
  command->footer(kTopFooter);
  command->add_option("RUN", options->run, "Folder or name of a run [the newest]")->type_name("");
  command->add_flag("--once", options->once, "Print its state and end");
  return {command,
          [options] { return monitor::show_top(monitor::find_run(options->run), options->once); }};
}

int run_run_recorder(const std::vector<std::string>& words) {
  if (words.size() != 3) {
    throw UsageError({.what = "accelerate run-recorder is started by accelerate launch alone",
                      .hint = "accelerate monitor RUN"});
  }
  return monitor::run_recorder(
      {.folder = words[0],
       .machine = static_cast<uint64_t>(word_number(words[1])),
       .page_socket = word_number(words[2]),
       .token = word_number(words[2]) < 0
                    ? ""
                    : environment_variable(monitor::kTokenVariable).value_or("")});
}

}  // namespace accelerate::cli
