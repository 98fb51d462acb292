#include "launch/job/job.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "accelerate/errors.h"
#include "base/terminal_colours.h"
#include "base/unique_fd.h"
#include "launch/job/job_runner.h"
#include "launch/job/machine_plans.h"
#include "launch/job/run_helper.h"
#include "launch/plan/shell_words.h"
#include "launch/remote/elastic_control.h"
#include "launch/remote/main_control.h"
#include "launch/remote/member_control.h"
#include "launch/remote/remote_plan.h"

namespace accelerate::launch {
namespace {

void tell_user(const LaunchPlan& plan, const std::string& text) {
  if (plan.quiet) return;
  const std::string line = fitted_messages("accelerate launch: " + text + "\n", STDERR_FILENO);
  std::fwrite(line.data(), 1, line.size(), stderr);
}

// `plan` with a place for its output, about which the user is told.
template <class Plan>
Plan with_own_logs(const Plan& plan) {
  const LogPlace place = place_of_logs(plan);
  for (const std::string& note : place.notes) tell_user(plan, note);
  return with_logs(plan, place);
}

int run_here(const MachinePlan& plan, int lifeline) {
  if (plan.has_range()) {
    ElasticControl control(plan);
    return run_machine(plan, control, lifeline);
  }
  if (plan.machine_rank == 0) {
    MainControl control(plan);
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

int run_job(const LaunchPlan& request) {
  const JobPlan job = with_own_logs(resolve(request));
  const MachinePlan machine = machine_plan(job);
  if (job.debug) {
    for (const auto& command : machine.commands()) tell_user(job, shell_line(command));
  }
  start_run_helper(machine);
  return run_here(machine, -1);
}

JobPreview preview_job(const LaunchPlan& request) {
  const JobPlan job = resolve(request);
  return {.plan = job, .commands = machine_plan(job).commands()};
}

int run_node_agent(const std::string& plan_text) {
  const bool reads_input = plan_text == kPlanInInput;
  const RemotePlan remote =
      reads_input ? read_remote_plan(STDIN_FILENO) : decode_remote_plan(plan_text);
  set_environment(remote.environment);
  if (chdir(remote.folder.c_str()) != 0) {
    throw ConfigError({.what = "cannot work in " + remote.folder + ": " + std::strerror(errno),
                       .where = "this machine",
                       .hint = "run from a folder that all machines share"});
  }
  const MachinePlan machine = with_own_logs(machine_plan(remote));
  start_run_helper(machine);
  const int input = reads_input ? move_input_away() : -1;
  return run_here(machine, remote.has_lifeline ? input : -1);
}

}  // namespace accelerate::launch
