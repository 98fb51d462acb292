#include "launch/job/machine_plans.h"

#include <filesystem>
#include <utility>

#include "launch/plan/allocation.h"
#include "launch/plan/command_line.h"
#include "launch/plan/mpirun_command.h"
#include "launch/plan/shell_words.h"
#include "launch/plan/worker_environment.h"
#include "launch/remote/network.h"

namespace accelerate::launch {
namespace {

namespace fs = std::filesystem;

// Linux takes words of 128 KiB, and srun has some of its own.
constexpr size_t kMaxPlanWord = size_t{64} << 10;

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

// What is left to the launchers behind a starter, or to mpirun.
MachinePlan starter_plan(const JobPlan& job, std::string name, int starters) {
  MachinePlan plan{job};
  plan.workers = std::move(name);
  plan.prefix_output = false;
  plan.num_processes = starters;
  plan.num_machines = 1;
  return plan;
}

MachinePlan through_mpirun(const JobPlan& job) {
  const std::vector<Host>& hosts = job.hosts;
  const std::vector<std::string> mpirun = starter_words(job, "mpirun");
  std::vector<std::string> names = {"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID",
                                    "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS"};
  for (const auto& [name, value] : setting_variables(job)) names.push_back(name);
  const MpiKind kind = find_mpi_kind(mpirun);
  const bool is_here = hosts.empty() || (hosts.size() == 1 && is_own_address(address_of(hosts[0])));
  MachinePlan plan = starter_plan(job, "mpirun", 1);
  plan.command = mpirun_command(job, kind, hosts, mpirun, names);
  plan.signals_go_to_children = kind == MpiKind::kOpenMpi && is_here;
  return plan;
}

// Launchers behind srun and ssh see to output and restarts themselves, and meet where they agree.
MachinePlan launchers_plan(const JobPlan& job, std::string name, int starters) {
  MachinePlan plan = starter_plan(job, std::move(name), starters);
  plan.log_dir.clear();
  plan.tee.reset();
  plan.max_restarts = 0;
  plan.main_port = 0;
  return plan;
}

MachinePlan through_srun(const JobPlan& job) {
  RemotePlan remote = remote_plan(job);
  remote.environment.clear();  // srun hands it down itself
  remote.place_from_slurm = true;
  const std::string machines = std::to_string(job.num_machines);
  std::string plan_word = encode_remote_plan(remote);
  const bool fits = plan_word.size() <= kMaxPlanWord;
  if (!fits) plan_word = kPlanInInput;  // which srun copies to all its tasks
  MachinePlan plan = launchers_plan(job, "srun", 1);
  plan.command = starter_words(job, "srun");
  for (const std::string& word :
       {"--nodes=" + machines, "--ntasks=" + machines, std::string("--ntasks-per-node=1"),
        std::string("--cpu-bind=quiet,none"), std::string("--mpi=none"),
        std::string(fits ? "--input=none" : "--input=all"), std::string("--kill-on-bad-exit=0"),
        own_path(), std::string("node-agent"), plan_word}) {
    plan.command.push_back(word);
  }
  if (fits) return plan;
  plan.programs = {plan.command};
  plan.inputs = {remote_plan_for_stream(remote)};
  plan.signals_follow_inputs = false;
  return plan;
}

MachinePlan through_ssh(const JobPlan& job) {
  RemotePlan remote = remote_plan(job);
  remote.has_lifeline = true;
  const std::vector<std::string> ssh =
      starter_words(job, "ssh", {"-o", "BatchMode=yes", "-o", "ServerAliveInterval=15"});
  MachinePlan plan = launchers_plan(job, "ssh to machine", static_cast<int>(job.hosts.size()));
  for (const Host& host : job.hosts) {
    remote.plan.machine_rank = static_cast<int>(plan.programs.size());
    std::vector<std::string> command = ssh;
    command.push_back(host.name);
    // ssh joins its words with blanks and gives the line to a shell on the other side. The plan
    // goes through its input: it carries variables that are nobody's business.
    command.push_back("exec " + shell_line({own_path(), "node-agent", kPlanInInput}));
    plan.programs.push_back(std::move(command));
    plan.inputs.push_back(remote_plan_for_stream(remote));
    plan.led_to.push_back(host.name);
  }
  return plan;
}

}  // namespace

MachinePlan machine_plan(const JobPlan& job) {
  switch (job.launcher) {
    case LauncherKind::kLocal:
      break;
    case LauncherKind::kMpirun:
      return through_mpirun(job);
    case LauncherKind::kSlurm:
      return through_srun(job);
    case LauncherKind::kSsh:
      return through_ssh(job);
  }
  return MachinePlan{job};
}

MachinePlan machine_plan(const RemotePlan& remote) {
  MachinePlan plan{remote.plan};
  plan.is_agent = true;
  if (remote.place_from_slurm) {
    const Allocation allocation = find_allocation();
    plan.machine_rank = allocation.machine_rank;
    if (plan.main_address.empty() && plan.num_machines > 1) {
      plan.main_address = allocation.main_address;
    }
  }
  require_shares({.processes = plan.num_processes, .machines = plan.num_machines},
                 plan.machine_rank);
  return plan;
}

}  // namespace accelerate::launch
