#include "cli/launch_command.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "accelerate/errors.h"
#include "cli/help_formatter.h"
#include "launch/command_line.h"
#include "launch/failure_report.h"
#include "launch/local_supervisor.h"
#include "launch/machine.h"
#include "launch/port_reservation.h"

namespace accelerate::cli {
namespace {

constexpr int kMaxProcesses = 4096;

constexpr const char* kExamples =
    R"(Flags of the launcher come before the program; all that follows the program is its own.
Long flags may be spelled with - or with _.

Examples:
  accelerate launch --num_processes 2 ./train --epochs 3
  accelerate launch --cpu --num_processes 4 --prefix_output train.py --lr 0.1
  accelerate launch --num_processes 2 -m package.train
)";

launch::ProgramKind program_kind(const LaunchOptions& options) {
  if (options.module) return launch::ProgramKind::kModule;
  return options.no_python ? launch::ProgramKind::kAsIs : launch::ProgramKind::kAuto;
}

int default_num_processes(const LaunchOptions& options) {
  return options.cpu ? 1 : std::max(1, launch::visible_gpus());
}

launch::LaunchPlan make_plan(const LaunchOptions& options, int main_port) {
  launch::LaunchPlan plan;
  plan.command =
      launch::worker_command(program_kind(options), options.program, options.program_arguments);
  plan.num_processes = options.num_processes.value_or(default_num_processes(options));
  plan.main_port = main_port;
  plan.use_cpu = options.cpu;
  if (!options.mixed_precision.empty()) plan.mixed_precision = options.mixed_precision;
  plan.num_cpu_threads_per_process = options.num_cpu_threads_per_process;
  plan.prefix_output = options.prefix_output;
  if (options.grace_period) {
    plan.failure_grace = plan.signal_grace =
        std::chrono::milliseconds(static_cast<int64_t>(*options.grace_period * 1000));
  }
  return plan;
}

}  // namespace

CLI::App* setup_launch(CLI::App& app, LaunchOptions& options) {
  CLI::App* launch = app.add_subcommand("launch", "Start the workers of a training program");
  launch->formatter(
      std::make_shared<HelpFormatter>("accelerate launch [flags] program [arguments of program]"));
  launch->footer(kExamples);

  launch->add_option("--num_processes", options.num_processes, "Workers to start [one a GPU, or 1]")
      ->type_name("N")
      ->check(CLI::Range(1, kMaxProcesses).description(""))
      ->group("Processes");
  launch
      ->add_option("--num_cpu_threads_per_process", options.num_cpu_threads_per_process,
                   "OMP_NUM_THREADS of a worker [an equal share of the cores]")
      ->type_name("N")
      ->check(CLI::Range(1, kMaxProcesses).description(""))
      ->group("Processes");
  launch
      ->add_option("--main_process_port", options.main_process_port,
                   "TCP port where rank 0 meets the others [0: a free one]")
      ->type_name("PORT")
      ->check(CLI::Range(0, 65535).description(""))
      ->group("Processes");

  launch->add_flag("--cpu", options.cpu, "Train on the CPU even where there is a GPU")
      ->group("Training");
  launch
      ->add_option("--mixed_precision", options.mixed_precision,
                   "What models compute in: no, fp16, bf16 or fp8 [no]")
      ->type_name("NAME")
      ->check(CLI::IsMember({"no", "fp16", "bf16", "fp8"}).description(""))
      ->group("Training");

  CLI::Option* module =
      launch->add_flag("-m,--module", options.module, "The program is a Python module")
          ->group("Program");
  launch
      ->add_flag("--no_python", options.no_python,
                 "Execute the program as it is, also if it ends in .py")
      ->excludes(module)
      ->group("Program");

  launch
      ->add_flag("--prefix_output", options.prefix_output,
                 "Begin each line of output with its rank: [rank 1]")
      ->group("Output and end");
  launch
      ->add_option("--grace_period", options.grace_period,
                   "Time workers get to stop before they are killed\n"
                   "[5 after a failure, 30 after a signal to the launcher]")
      ->type_name("SECONDS")
      ->check(CLI::Range(0.0, 86400.0).description(""))
      ->group("Output and end");
  launch->set_help_flag("-h,--help", "Print this help and exit")->group("Other");
  return launch;
}

int run_launch(const LaunchOptions& options) {
  if (options.program.empty()) {
    throw UsageError({.what = "accelerate launch needs a program to run",
                      .hint = "accelerate launch --num_processes 2 ./train"});
  }
  const auto port = options.main_process_port == 0
                        ? launch::PortReservation::any()
                        : launch::PortReservation::of(options.main_process_port);
  const launch::LaunchOutcome outcome = launch::run_local_job(make_plan(options, port.port()));
  const std::string report = launch::failure_report(outcome);
  std::fwrite(report.data(), 1, report.size(), stderr);
  return outcome.exit_code();
}

}  // namespace accelerate::cli
