// accelerate launch
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace accelerate::cli {

struct LaunchOptions {
  std::optional<int> num_processes;  // unset: one a GPU, or one
  bool cpu = false;
  std::string mixed_precision;  // "": not given
  std::optional<int> num_cpu_threads_per_process;
  int main_process_port = 0;  // 0: a free one
  bool module = false;
  bool no_python = false;
  bool prefix_output = false;
  std::optional<double> grace_period;  // seconds
  std::string program;
  std::vector<std::string> program_arguments;
};

// Adds the command to `app`. `options` is filled when `app` parses, and must outlive it; program
// and its arguments are not parsed but set by the caller (see split_launch_arguments).
CLI::App* setup_launch(CLI::App& app, LaunchOptions& options);

// Runs the job; blocks until it has ended. Returns the exit code of the program `accelerate`.
// Throws UsageError, ConfigError or ProgramError before any worker runs.
int run_launch(const LaunchOptions& options);

}  // namespace accelerate::cli
