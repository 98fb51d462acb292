#include "cli/commands/launch_command.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "accelerate/errors.h"
#include "base/environment.h"
#include "base/terminal_colours.h"
#include "base/user_folders.h"
#include "cli/commands/launch_allocation.h"
#include "cli/commands/launch_notes.h"
#include "cli/commands/launch_recording.h"
#include "cli/help/launch_help.h"
#include "cli/reports/explain_dry_run.h"
#include "cli/reports/explain_table.h"
#include "cli/reports/print_output.h"
#include "cli/reports/sharding_report.h"
#include "config/capabilities.h"
#include "config/config_path.h"
#include "config/schema.h"
#include "config/sharding_check.h"
#include "config/variable_names.h"
#include "config/worker_variables.h"
#include "launch/job/job.h"
#include "launch/plan/allocation.h"
#include "launch/plan/command_line.h"
#include "launch/plan/machine.h"
#include "launch/plan/worker_environment.h"

namespace accelerate::cli {
namespace {

using config::Settings;
using config::ValueSource;
using launch::LauncherKind;
using launch::LaunchPlan;
using std::chrono::milliseconds;

void print(FILE* stream, const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stream);
}

milliseconds milliseconds_of(double seconds) {
  return milliseconds(static_cast<int64_t>(seconds * 1000));
}

launch::ProgramKind program_kind(const Settings& settings) {
  if (settings.is_on("module")) return launch::ProgramKind::kModule;
  return settings.is_on("no_python") ? launch::ProgramKind::kAsIs : launch::ProgramKind::kAuto;
}

// What DeepSpeed's name for a launcher means here.
LauncherKind deepspeed_launcher(const std::string& name) {
  if (name == "standard" || name == "nossh") return LauncherKind::kLocal;
  if (name == "slurm") return LauncherKind::kSlurm;
  return name.empty() || name == "pdsh" ? LauncherKind::kSsh : LauncherKind::kMpirun;
}

LauncherKind launcher_kind(const Settings& settings) {
  const std::string name = settings.text("launcher");
  if (name == "mpirun") return LauncherKind::kMpirun;
  if (name == "slurm") return LauncherKind::kSlurm;
  if (name == "ssh") return LauncherKind::kSsh;
  if (name == "local") return LauncherKind::kLocal;
  if (settings["mpirun_hostfile"].text) return LauncherKind::kMpirun;
  if (settings["hostfile"].text) return LauncherKind::kSsh;
  const bool is_deepspeed_cluster = settings.is_on("use_deepspeed") &&
                                    settings["deepspeed_hostfile"].text &&
                                    settings.integer("num_machines").value_or(1) > 1;
  if (is_deepspeed_cluster)
    return deepspeed_launcher(settings.text("deepspeed_multinode_launcher"));
  return LauncherKind::kLocal;
}

// The setting that names the file of machines: only mpirun and ssh are told them so. nullptr: none.
const char* hostfile_setting(const Settings& settings, LauncherKind launcher) {
  if (launcher != LauncherKind::kMpirun && launcher != LauncherKind::kSsh) return nullptr;
  for (const char* name : {"hostfile", "mpirun_hostfile"}) {
    if (settings[name].text) return name;
  }
  const bool is_deepspeed = settings.is_on("use_deepspeed") && settings["deepspeed_hostfile"].text;
  return is_deepspeed ? "deepspeed_hostfile" : nullptr;
}

// The file of machines; "" if there is none. Throws ConfigError that names who gave one that cannot
// be opened.
std::string hostfile_of(const Settings& settings, LauncherKind launcher) {
  const char* name = hostfile_setting(settings, launcher);
  if (name == nullptr) return "";
  const std::string path = settings.text(name);
  if (path.empty() || std::ifstream(path).is_open()) return path;
  throw ConfigError({.what = "cannot read the host file " + path + ": " + std::strerror(errno),
                     .where = config::place_of(settings[name].source),
                     .hint = "name a file with one machine per line, such as: node1 slots=2"});
}

void take_output(const Settings& settings, LaunchPlan& plan) {
  plan.prefix_output = settings.is_on("prefix_output");
  plan.log_dir = settings.text("log_dir");
  // 0, the preset, changes nothing, as in torchrun.
  const std::string tee = settings.text("tee");
  if (tee == "none") plan.tee = launch::Tee{};
  if (tee != "none" && tee != "0") plan.tee = launch::Tee::parse(tee);
  plan.quiet = settings.is_on("quiet");
  plan.debug = settings["debug"].source.kind == ValueSource::kFlag && settings.is_on("debug");
}

void take_times(const Settings& settings, LaunchPlan& plan) {
  plan.max_restarts = settings.integer("max_restarts").value_or(0);
  plan.monitor_interval = milliseconds_of(settings.number("monitor_interval").value_or(0.1));
  launch::apply_rendezvous_settings(settings.text("rdzv_conf"), plan);
  if (const auto grace = settings.number("grace_period")) {
    plan.failure_grace = plan.signal_grace = milliseconds_of(*grace);
  }
}

// A file that counts workers knows nothing of machines that are named beside it.
bool is_overruled_by_hostfile(const Settings& settings, LauncherKind launcher) {
  const char* name = hostfile_setting(settings, launcher);
  return name != nullptr && settings["num_processes"].source.kind == ValueSource::kFile &&
         settings[name].source.kind != ValueSource::kFile;
}

void take_machines(const Settings& settings, LaunchPlan& plan) {
  plan.launcher = launcher_kind(settings);
  plan.hostfile = hostfile_of(settings, plan.launcher);
  plan.launcher_command = settings.text("launcher_command");
  plan.run_id = settings.text("run_id");
  plan.num_machines = settings.integer("num_machines").value_or(1);
  plan.min_machines = settings.integer("min_machines").value_or(0);
  plan.machine_rank = settings.integer("machine_rank").value_or(0);
  plan.main_address = settings.text("main_process_ip");
  plan.main_port = settings.integer("main_process_port").value_or(0);
  plan.same_network = settings.is_on("same_network");
  plan.num_processes = settings.integer("num_processes").value_or(1);
  const bool is_left_to_slots =
      !settings["num_processes"].is_given() || is_overruled_by_hostfile(settings, plan.launcher);
  if (is_left_to_slots && !plan.hostfile.empty()) plan.num_processes = 0;  // one a slot
  // Every configuration file says 1, also where it names the machines elsewhere.
  const ValueSource who = settings["num_machines"].source.kind;
  const bool is_chosen = who == ValueSource::kFlag || who == ValueSource::kVariable;
  if (!plan.hostfile.empty() && plan.num_machines == 1 && !is_chosen) plan.num_machines = 0;
}

// Takes what the allocation around this process decides of the settings. Returns a sentence that
// names what it overrules; "" if nothing.
std::string overruled_by_allocation(Settings& settings) {
  const LauncherKind launcher = launcher_kind(settings);
  if (settings.text("launcher") == "local") return "";
  if (launcher != LauncherKind::kLocal && launcher != LauncherKind::kSlurm) return "";
  if (!is_left_to_allocation(settings)) return "";
  return take_allocation(launch::find_allocation(), settings);
}

void refuse_sagemaker(const config::ConfigFile& file) {
  if (!file.is_sagemaker) return;
  throw ConfigError(
      {.what = "the file is for Amazon SageMaker, where this program cannot start anything",
       .where = file.path.string(),
       .hint = "name another file with --config_file, or write one with accelerate "
               "config"});
}

std::vector<std::string> variable_names() {
  std::vector<std::string> names = launch::current_environment();
  for (std::string& variable : names)
    variable.resize(std::min(variable.find('='), variable.size()));
  return names;
}

std::string named_config_file(const LaunchArguments& arguments) {
  std::string named = environment_variable("ACCELERATE_CONFIG_FILE").value_or("");
  for (const config::FlagValue& flag : arguments.flags) {
    if (flag.setting->name == "config_file") named = flag.text;
  }
  return expanded_path(named).string();
}

}  // namespace

std::optional<config::ConfigFile> find_config_file(const std::string& named) {
  if (!named.empty()) return config::load_config_file(named);
  const std::filesystem::path path = config::default_config_path();
  std::error_code no_file;
  if (!std::filesystem::is_regular_file(path, no_file)) return std::nullopt;
  return config::load_config_file(path);
}

Settings settings_of_run(const std::vector<config::FlagValue>& flags,
                         const config::ConfigFile* file) {
  return config::resolve_settings(
      {.flags = flags,
       .variable = [](const std::string& name) { return environment_variable(name.c_str()); },
       .file = file,
       .gpus = launch::visible_gpus()});
}

LaunchPlan make_launch_plan(const Settings& settings, const LaunchArguments& arguments) {
  LaunchPlan plan;
  plan.command = launch::worker_command(program_kind(settings), arguments.program,
                                        arguments.program_arguments);
  plan.use_cpu = settings.is_on("cpu");
  plan.variables = config::worker_variables(settings);
  plan.gpu_ids = settings["gpu_ids"].text;
  plan.num_cpu_threads_per_process = settings.integer("num_cpu_threads_per_process");
  plan.cpu_affinity = settings.is_on("enable_cpu_affinity");
  take_machines(settings, plan);
  take_output(settings, plan);
  take_times(settings, plan);
  return plan;
}

namespace {

void tell(const std::string& note) {
  if (note.empty()) return;
  print(stderr, fitted_messages("accelerate launch: " + note + "\n", STDERR_FILENO));
}

config::WorkerKind worker_kind(const LaunchPlan& plan) {
  return launch::runs_python(plan.command) ? config::WorkerKind::kPython
                                           : config::WorkerKind::kNative;
}

// Python's library does not shard on CPUs: there a flag or a variable for the CPU overrules what a
// file says, and contradicts another flag. Throws ConfigError about those.
void settle_for_python(Settings& settings) {
  const config::SettingValue cpu = settings["cpu"];
  if (!settings.is_on("cpu") || cpu.source.kind == ValueSource::kFile) return;
  for (const char* name : {"use_deepspeed", "use_fsdp"}) {
    if (!settings.is_on(name)) continue;
    const config::SettingValue sharded = settings[name];
    if (sharded.source.kind == ValueSource::kFile) {
      settings.set(*config::find_setting(name), "false", cpu.source);
      continue;
    }
    throw ConfigError({.what = "Python's library does not shard on CPUs: cpu and " +
                               std::string(name) + " cannot be used together",
                       .where = config::place_of(sharded.source),
                       .hint = "leave one of them out"});
  }
}

// Throws ConfigError where this build or this machine lacks what is asked for.
void refuse_what_is_missing(const Settings& settings, config::WorkerKind workers) {
  config::refuse_missing_capability(settings, workers);
  config::refuse_inherited_variables(environment_variable, settings, workers);
  if (workers == config::WorkerKind::kNative) {
    static_cast<void>(config::requested_sharding(settings));  // throws where it cannot be
  }
  refuse_missing_gpus(settings, launcher_kind(settings));
}

// What that throws, as a sentence; "" if it throws nothing.
std::string refusal_of_run(const Settings& settings, config::WorkerKind workers) {
  try {
    refuse_what_is_missing(settings, workers);
  } catch (const ConfigError& refusal) {
    const bool is_named = refusal.message().find(refusal.where()) != std::string::npos;
    return refusal.message() + (is_named ? "" : " (" + refusal.where() + ")");
  }
  return "";
}

// What a dry run says of a plan that would not be started.
std::string note_on_dry_run(const Settings& settings, const LaunchPlan& plan) {
  const std::string refusal = refusal_of_run(settings, worker_kind(plan));
  return refusal.empty() ? "" : "without --dry_run this is refused: " + refusal;
}

// What a dry run says of the memory of a sharded job; "" of others, and where it would be refused.
std::string note_on_shards(const Settings& settings, const LaunchPlan& plan) {
  if (worker_kind(plan) == config::WorkerKind::kPython) return "";
  try {
    const auto request = config::requested_sharding(settings);
    if (!request) return "";
    return sharding_text(*request, settings.integer("num_processes").value_or(1),
                         settings.text("mixed_precision"));
  } catch (const ConfigError&) {
    return "";  // told already, as what would be refused
  }
}

// What --explain says of settings that cannot run. Which program they are for may be open.
std::string note_on_settings(const Settings& settings) {
  if (const std::string any = refusal_of_run(settings, config::WorkerKind::kPython); !any.empty()) {
    return "with these settings nothing is started: " + any;
  }
  const std::string native = refusal_of_run(settings, config::WorkerKind::kNative);
  return native.empty() ? "" : "with these settings no native program is started: " + native;
}

int launch_words(const std::vector<std::string>& words, bool repeat_last_lines) {
  const LaunchArguments arguments = parse_launch_arguments(words);
  if (arguments.help != HelpWanted::kNo) {
    print_output(launch_help(arguments.help));
    return 0;
  }
  config::refuse_mistyped_variables(variable_names());
  const auto file = find_config_file(named_config_file(arguments));
  if (file) refuse_sagemaker(*file);
  Settings settings = settings_of_run(arguments.flags, file ? &*file : nullptr);
  std::string overruled = overruled_by_allocation(settings);
  if (settings.integer("machine_rank").value_or(0) != 0) overruled.clear();
  if (settings.is_on("explain")) {
    tell(std::exchange(overruled, ""));
    print_output(fitted_messages(explain_table(settings, settings.is_on("all")), STDOUT_FILENO));
    for (const std::string& name : config::variables_without_setting(variable_names())) {
      print(stdout, name + ": no setting has this variable; it is passed on to the workers\n");
    }
  }
  if (settings.is_on("explain") && !settings.is_on("dry_run")) {
    tell(note_on_settings(settings));
    return 0;
  }
  if (arguments.program.empty()) {
    throw UsageError({.what = "accelerate launch needs a program to run",
                      .hint = "accelerate launch --num_processes 2 ./train"});
  }
  if (worker_kind(make_launch_plan(settings, arguments)) == config::WorkerKind::kPython) {
    settle_for_python(settings);
  }
  LaunchPlan plan = make_launch_plan(settings, arguments);
  plan.repeat_last_lines = repeat_last_lines;
  const bool is_dry = settings.is_on("dry_run");
  if (!is_dry)
    refuse_what_is_missing(settings, worker_kind(plan));  // before anything is said of a run
  tell(overruled);
  if (is_dry) tell(note_on_dry_run(settings, plan));
  for (const std::string& note : launch_notes(settings, plan)) tell(note);
  if (!is_dry) {
    LaunchRecording recording(settings, arguments, plan);
    if (!plan.quiet) tell(recording.note());
    return recording.ended(launch::run_job(plan));
  }
  print(stdout, dry_run_text(plan));
  print(stdout, note_on_shards(settings, plan));
  return 0;
}

}  // namespace

int run_launch(const std::vector<std::string>& words) { return launch_words(words, true); }

int run_own_program(const std::vector<std::string>& words) { return launch_words(words, false); }

}  // namespace accelerate::cli
