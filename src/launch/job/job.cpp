#include "launch/job/job.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>

#include "accelerate/errors.h"
#include "base/port_of_name.h"
#include "base/random_id.h"
#include "base/terminal_colours.h"
#include "base/unique_fd.h"
#include "launch/job/job_runner.h"
#include "launch/plan/allocation.h"
#include "launch/plan/command_line.h"
#include "launch/plan/hostfile.h"
#include "launch/plan/machine.h"
#include "launch/plan/mpirun_command.h"
#include "launch/plan/shell_words.h"
#include "launch/plan/worker_environment.h"
#include "launch/remote/main_control.h"
#include "launch/remote/member_control.h"
#include "launch/remote/network.h"
#include "launch/remote/remote_plan.h"

namespace accelerate::launch {
namespace {

namespace fs = std::filesystem;

constexpr int kDefaultPort = 29500;        // torchrun's
constexpr const char* kPlanInInput = "-";  // of node-agent, instead of a plan
// Linux takes words of 128 KiB, and srun has some of its own.
constexpr size_t kMaxPlanWord = size_t{64} << 10;

void tell_user(const LaunchPlan& plan, const std::string& text) {
  if (plan.quiet) return;
  const std::string line = fitted_messages("accelerate launch: " + text + "\n", STDERR_FILENO);
  std::fwrite(line.data(), 1, line.size(), stderr);
}

void require_shares(const LaunchPlan& plan) {
  if (plan.num_machines < 1 || plan.machine_rank < 0 || plan.machine_rank >= plan.num_machines) {
    throw ConfigError({.what = "--machine_rank " + std::to_string(plan.machine_rank) +
                               " is not below --num_machines " + std::to_string(plan.num_machines),
                       .where = "--machine_rank",
                       .hint = "machines count from 0"});
  }
  if (plan.num_processes >= 1 && plan.num_processes % plan.num_machines == 0) return;
  throw ConfigError({.what = std::to_string(plan.num_processes) +
                             " processes cannot be divided evenly among " +
                             std::to_string(plan.num_machines) + " machines",
                     .where = "--num_processes",
                     .hint = "it counts the processes of all machines together"});
}

// A rank that there is not would be a mistake in silence: it shows nothing of those that there are.
void require_tee_ranks(const LaunchPlan& plan) {
  if (!plan.tee || plan.tee->of_rank.empty()) return;
  const int last = plan.processes_per_machine() - 1;
  const int highest = plan.tee->of_rank.rbegin()->first;
  if (highest <= last) return;
  throw ConfigError({.what = "--tee names local rank " + std::to_string(highest) +
                             ", but the last one of a machine is " + std::to_string(last),
                     .where = "--tee",
                     .hint = "local ranks count from 0 on every machine"});
}

void require_equal_slots(const LaunchPlan& plan, const std::vector<Host>& hosts) {
  for (const Host& host : hosts) {
    if (host.slots == hosts.front().slots) continue;
    throw ConfigError({.what = hosts.front().name + " has " + std::to_string(hosts.front().slots) +
                               " slots, " + host.name + " has " + std::to_string(host.slots) +
                               ": every machine runs the same number of workers",
                       .where = plan.hostfile.string(),
                       .hint = "give all the same slots, or name --num_processes, which is "
                               "divided evenly"});
  }
}

// The machines of the host file that take part; fills in what follows from them.
std::vector<Host> choose_hosts(LaunchPlan& plan) {
  if (plan.hostfile.empty()) return {};
  std::vector<Host> hosts = read_hostfile(plan.hostfile);
  if (plan.num_machines > static_cast<int>(hosts.size())) {
    throw ConfigError({.what = "--num_machines " + std::to_string(plan.num_machines) +
                               ", but the host file names " + std::to_string(hosts.size()),
                       .where = plan.hostfile.string(),
                       .hint = "add machines to it, or ask for fewer"});
  }
  if (plan.num_machines > 0) hosts.resize(static_cast<size_t>(plan.num_machines));
  plan.num_machines = static_cast<int>(hosts.size());
  if (plan.num_processes == 0) {
    require_equal_slots(plan, hosts);
    plan.num_processes = plan.num_machines * hosts.front().slots;
  }
  if (plan.main_address.empty() && hosts.size() > 1) plan.main_address = address_of(hosts.front());
  return hosts;
}

// Checks the plan and fills in what is left open. `hosts` are those of its host file.
LaunchPlan fill_in(LaunchPlan plan, std::vector<Host>& hosts) {
  hosts = choose_hosts(plan);
  if (plan.num_processes == 0) plan.num_processes = plan.num_machines;
  require_shares(plan);
  require_tee_ranks(plan);
  const bool by_hand = plan.launcher == LauncherKind::kLocal;
  if (plan.num_machines > 1 && by_hand && plan.main_address.empty()) {
    throw ConfigError({.what = "--num_machines " + std::to_string(plan.num_machines) +
                               " needs the address of the machine with --machine_rank 0",
                       .where = "--main_process_ip",
                       .hint = "--main_process_ip 10.0.0.1 --main_process_port 29500, on every "
                               "machine alike"});
  }
  if (plan.launcher == LauncherKind::kSsh && hosts.empty()) {
    throw ConfigError({.what = "--launcher ssh needs the list of machines",
                       .where = "--hostfile",
                       .hint = "a file with one machine per line, such as: node1 slots=2"});
  }
  // Members of a job learn its name from the main machine.
  const bool is_main = plan.machine_rank == 0;
  if (plan.run_id.empty() && is_main) plan.run_id = random_id();
  if (plan.num_machines > 1 && plan.main_port == 0) {
    plan.main_port = by_hand ? kDefaultPort : port_of_name(plan.run_id);
  }
  return plan;
}

bool shows_all(const LaunchPlan& plan) {
  for (int local_rank = 0; local_rank < plan.processes_per_machine(); ++local_rank) {
    if (plan.tee->streams_of(local_rank) != (Tee::kOut | Tee::kErr)) return false;
  }
  return true;
}

// Streams that are shown in part must go somewhere whole.
void give_log_dir(LaunchPlan& plan) {
  if (!plan.tee || !plan.log_dir.empty() || shows_all(plan)) return;
  const char* base = std::getenv("TMPDIR");
  std::string folder =
      std::string(base != nullptr && *base != '\0' ? base : "/tmp") + "/accelerate_XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) {
    throw ConfigError({.what = "cannot make " + folder + ": " + std::strerror(errno),
                       .where = "--tee",
                       .hint = "name a folder with --log_dir"});
  }
  plan.log_dir = folder;
  tell_user(plan, "the output of all ranks goes to " + folder);
}

// Output of an earlier run is not replaced: if a rank of this job has files in the folder, the
// ranks write to a new folder inside it, which is reported. A launcher that starts others looks for
// the files of all ranks, on the disks that it sees, and passes the folder on; every launcher of a
// machine, also one that was started by another, looks for those of its own ranks on its own disks.
void keep_earlier_logs(LaunchPlan& plan) {
  if (plan.log_dir.empty()) return;
  const bool is_own_share = plan.launcher == LauncherKind::kLocal;
  const int first = is_own_share ? plan.machine_rank * plan.processes_per_machine() : 0;
  const int count = is_own_share ? plan.processes_per_machine() : plan.num_processes;
  const fs::path named = plan.log_run > 1 ? plan.log_dir.parent_path() : plan.log_dir;
  const auto folder_of_run = [&](int run) {
    return run > 1 ? named / ("run_" + std::to_string(run)) : named;
  };
  const auto holds_logs = [&](const fs::path& folder) {
    std::error_code error;
    for (int rank = first; rank < first + count; ++rank) {
      if (fs::exists(folder / ("rank_" + std::to_string(rank)), error)) return true;
    }
    return false;
  };
  int run = plan.log_run;
  while (holds_logs(folder_of_run(run))) ++run;
  if (run == plan.log_run) return;
  plan.log_run = run;
  plan.log_dir = folder_of_run(run);
  const std::string where = plan.num_machines > 1 && is_own_share ? " on " + short_host_name() : "";
  tell_user(plan, named.string() + where +
                      " holds the output of an earlier run; this one goes to " +
                      plan.log_dir.string());
}

std::vector<std::string> starter_words(const LaunchPlan& plan, const std::string& name,
                                       std::vector<std::string> flags = {}) {
  std::vector<std::string> words = split_words(plan.launcher_command);
  if (words.empty()) {
    words = {name};
    words.insert(words.end(), flags.begin(), flags.end());
  }
  words.front() = worker_command(ProgramKind::kAsIs, words.front(), {}).front();
  return words;
}

std::string own_path() {
  std::error_code error;
  const fs::path path = fs::read_symlink("/proc/self/exe", error);
  return error ? "accelerate" : path.string();
}

RemotePlan remote_plan(const LaunchPlan& plan) {
  RemotePlan remote{.plan = plan, .environment = environment_to_carry()};
  std::error_code error;
  remote.folder = fs::current_path(error).string();
  // The path of a program that was found here from the present folder must hold there too.
  std::string& program = remote.plan.command.front();
  program = fs::absolute(program, error).string();
  if (!plan.log_dir.empty()) remote.plan.log_dir = fs::absolute(plan.log_dir, error);
  return remote;
}

LaunchPlan through_mpirun(LaunchPlan plan, const std::vector<Host>& hosts) {
  const std::vector<std::string> mpirun = starter_words(plan, "mpirun");
  std::vector<std::string> names = {"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID",
                                    "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS"};
  for (const auto& [name, value] : setting_variables(plan)) names.push_back(name);
  const MpiKind kind = find_mpi_kind(mpirun);
  plan.command = mpirun_command(plan, kind, hosts, mpirun, names);
  const bool is_here = hosts.empty() || (hosts.size() == 1 && is_own_address(address_of(hosts[0])));
  plan.signals_go_to_children = kind == MpiKind::kOpenMpi && is_here;
  plan.prefix_output = false;
  plan.num_processes = plan.num_machines = 1;
  return plan;
}

LaunchPlan through_srun(LaunchPlan plan) {
  RemotePlan remote = remote_plan(plan);
  remote.environment.clear();  // srun hands it down itself
  remote.place_from_slurm = true;
  const std::string machines = std::to_string(plan.num_machines);
  std::string plan_word = encode_remote_plan(remote);
  const bool fits = plan_word.size() <= kMaxPlanWord;
  if (!fits) plan_word = kPlanInInput;  // which srun copies to all its tasks
  std::vector<std::string> command = starter_words(plan, "srun");
  for (const std::string& word :
       {"--nodes=" + machines, "--ntasks=" + machines, std::string("--ntasks-per-node=1"),
        std::string("--cpu-bind=quiet,none"), std::string("--mpi=none"),
        std::string(fits ? "--input=none" : "--input=all"), std::string("--kill-on-bad-exit=0"),
        own_path(), std::string("node-agent"), plan_word}) {
    command.push_back(word);
  }
  plan.command = command;
  if (!fits) {
    plan.programs = {command};
    plan.inputs = {remote_plan_for_stream(remote)};
    plan.signals_follow_inputs = false;
  }
  plan.prefix_output = false;
  plan.log_dir.clear();
  plan.tee.reset();
  plan.max_restarts = 0;  // the launchers that it starts see to that
  plan.num_processes = plan.num_machines = 1;
  plan.main_port = 0;
  return plan;
}

LaunchPlan through_ssh(LaunchPlan plan, const std::vector<Host>& hosts) {
  RemotePlan remote = remote_plan(plan);
  remote.has_lifeline = true;
  const std::vector<std::string> ssh =
      starter_words(plan, "ssh", {"-o", "BatchMode=yes", "-o", "ServerAliveInterval=15"});
  for (size_t machine = 0; machine < hosts.size(); ++machine) {
    remote.plan.machine_rank = static_cast<int>(machine);
    std::vector<std::string> command = ssh;
    command.push_back(hosts[machine].name);
    // ssh joins its words with blanks and gives the line to a shell on the other side. The plan
    // goes through its input: it carries variables that are nobody's business.
    command.push_back("exec " + shell_line({own_path(), "node-agent", kPlanInInput}));
    plan.programs.push_back(std::move(command));
    plan.inputs.push_back(remote_plan_for_stream(remote));
    plan.led_to.push_back(hosts[machine].name);
  }
  plan.prefix_output = false;
  plan.log_dir.clear();
  plan.tee.reset();
  plan.max_restarts = 0;
  plan.num_processes = static_cast<int>(hosts.size());
  plan.num_machines = 1;
  plan.main_port = 0;
  return plan;
}

// The plan of this machine alone, and what its workers are called.
struct LocalPart {
  LaunchPlan plan;
  std::string workers = kRanks;
};

// `plan` is filled in, `hosts` are those of its host file.
LocalPart local_part(const LaunchPlan& plan, const std::vector<Host>& hosts) {
  switch (plan.launcher) {
    case LauncherKind::kLocal:
      return {plan};
    case LauncherKind::kMpirun:
      return {through_mpirun(plan, hosts), "mpirun"};
    case LauncherKind::kSlurm:
      return {through_srun(plan), "srun"};
    case LauncherKind::kSsh:
      return {through_ssh(plan, hosts), "ssh to machine"};
  }
  return {plan};
}

std::vector<std::vector<std::string>> commands_of(const LaunchPlan& plan) {
  if (!plan.programs.empty()) return plan.programs;
  return std::vector<std::vector<std::string>>(1, plan.command);
}

int run_here(const LaunchPlan& plan, const std::string& workers, int lifeline) {
  if (plan.machine_rank == 0) {
    MainControl control(plan, workers);
    return run_machine(plan, control, lifeline);
  }
  MemberControl control(plan);
  return run_machine(plan, control, lifeline);
}

void set_environment(const std::vector<std::string>& variables) {
  for (const std::string& variable : variables) {
    const size_t equals = variable.find('=');
    if (equals == std::string::npos) continue;
    setenv(variable.substr(0, equals).c_str(), variable.substr(equals + 1).c_str(), 1);
  }
}

// Frees descriptor 0 for the workers and returns what was there.
int move_input_away() {
  const int lifeline = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
  const UniqueFd nothing(open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (lifeline < 0 || !nothing || dup2(nothing.get(), STDIN_FILENO) < 0) {
    throw CommError({.what = "cannot set descriptors up: " + std::string(std::strerror(errno)),
                     .hint = "raise the limit on open files (ulimit -n)"});
  }
  return lifeline;
}

}  // namespace

int run_job(const LaunchPlan& asked) {
  std::vector<Host> hosts;
  LaunchPlan plan = fill_in(asked, hosts);
  give_log_dir(plan);
  keep_earlier_logs(plan);
  const LocalPart part = local_part(plan, hosts);
  if (plan.debug) {
    for (const auto& command : commands_of(part.plan)) tell_user(plan, shell_line(command));
  }
  return run_here(part.plan, part.workers, -1);
}

JobPreview preview_job(const LaunchPlan& plan) {
  std::vector<Host> hosts;
  JobPreview preview{.plan = fill_in(plan, hosts)};
  const LocalPart part = local_part(preview.plan, hosts);
  preview.commands = commands_of(part.plan);
  preview.has_made_up_run_id = plan.run_id.empty();
  preview.has_drawn_port = plan.main_port == 0;
  return preview;
}

int run_node_agent(const std::string& plan_text) {
  RemotePlan remote =
      plan_text == kPlanInInput ? read_remote_plan(STDIN_FILENO) : decode_remote_plan(plan_text);
  LaunchPlan& plan = remote.plan;
  plan.is_agent = true;
  set_environment(remote.environment);
  if (chdir(remote.folder.c_str()) != 0) {
    throw ConfigError({.what = "cannot work in " + remote.folder + ": " + std::strerror(errno),
                       .where = "this machine",
                       .hint = "run from a folder that all machines share"});
  }
  if (remote.place_from_slurm) {
    const Allocation allocation = find_allocation();
    plan.machine_rank = allocation.machine_rank;
    if (plan.main_address.empty() && plan.num_machines > 1) {
      plan.main_address = allocation.main_address;
    }
  }
  require_shares(plan);
  keep_earlier_logs(plan);
  const int input = plan_text == kPlanInInput ? move_input_away() : -1;
  return run_here(plan, kRanks, remote.has_lifeline ? input : -1);
}

}  // namespace accelerate::launch
