#include "cli/commands/trace_command.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>

#include "accelerate/profiler.h"
#include "cli/help/help_formatter.h"
#include "cli/help/usage.h"
#include "cli/reports/print_output.h"
#include "cli/reports/text_table.h"

namespace accelerate::cli {
namespace {

struct TraceOptions {
  std::string folder;
  std::string output;
};

constexpr const char* kTraceFooter =
    R"(FOLDER is the output_trace_dir of a profile, with profile_0.json, profile_1.json and so on; those of torch.profiler are read too.
Clocks of machines are brought together by the exchanges that all ranks took part in, and by the collective kernels of NCCL.

Examples:
  accelerate trace merge traces
  accelerate trace merge traces --output all.json
)";

std::string microseconds_text(double us) {
  char text[64];
  std::snprintf(text, sizeof(text), "%.1f us", us);
  return text;
}

int run_merge_traces(const TraceOptions& options) {
  require_something_at(options.folder, "name the output_trace_dir of a profile");
  const TraceMerge merge = merge_traces(options.folder, options.output);
  TextTable table({Align::kLeft, Align::kLeft, Align::kRight, Align::kRight, Align::kRight});
  table.add({"RANK", "HOST", "CLOCK AHEAD", "EXCHANGES", "DEVIATION"});
  for (const MergedTrace& trace : merge.ranks) {
    table.add({std::to_string(trace.rank), trace.host, microseconds_text(trace.offset_us),
               std::to_string(trace.meetings), microseconds_text(trace.deviation_us)});
  }
  print_output(table.text() + std::to_string(merge.events) + " events: " + merge.path.string() +
               "\n");
  return 0;
}

}  // namespace

Command setup_trace(CLI::App& app) {
  auto options = std::make_shared<TraceOptions>();
  CLI::App* trace = add_command(app, "trace", "Put the traces of a profile's ranks together",
                                "accelerate trace merge FOLDER [--output FILE]");
  trace->footer(kTraceFooter);
  trace->require_subcommand(1);
  CLI::App* merge =
      add_command(*trace, "merge", "One trace of all ranks, with their clocks brought together",
                  "accelerate trace merge FOLDER [--output FILE]");
  merge->add_option("FOLDER", options->folder, "With profile_0.json, profile_1.json and so on")
      ->type_name("")
      ->required();
  merge
      ->add_option("--output,-o", options->output,
                   "Where the trace goes [profile_merged.json in FOLDER]")
      ->type_name("FILE");
  return {trace, [options] { return run_merge_traces(*options); }};
}

}  // namespace accelerate::cli
