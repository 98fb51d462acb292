#include "cli/explain_dry_run.h"

#include <algorithm>
#include <set>
#include <vector>

#include "launch/job.h"
#include "launch/machine.h"
#include "launch/shell_words.h"
#include "launch/worker_environment.h"

namespace accelerate::cli {
namespace {

std::string worker_text(const launch::LaunchPlan& plan, int local_rank,
                        const launch::WorkerSurroundings& surroundings) {
  const std::set<std::string> inherited(surroundings.inherited.begin(),
                                        surroundings.inherited.end());
  const int rank = plan.machine_rank * plan.processes_per_machine() + local_rank;
  std::string text = "rank " + std::to_string(rank) + "\n";
  std::vector<std::string> variables = launch::worker_environment(plan, local_rank, surroundings);
  std::sort(variables.begin(), variables.end());
  for (const std::string& variable : variables) {
    if (inherited.count(variable) > 0) continue;
    const size_t equals = variable.find('=') + 1;
    const std::string value = launch::shell_line({variable.substr(equals)});
    text += "  " + variable.substr(0, equals) +
            (variable == "MASTER_PORT=0" ? std::string("(a free one)") : value) + "\n";
  }
  return text + "  " + launch::shell_line(plan.command) + "\n";
}

}  // namespace

std::string dry_run_text(const launch::LaunchPlan& plan) {
  if (plan.launcher != launch::LauncherKind::kLocal) return launch::describe_job(plan);
  const launch::WorkerSurroundings surroundings{.inherited = launch::current_environment(),
                                                .cores = launch::available_cores()};
  launch::describe_job(plan);  // refuses what run_job() would refuse
  std::string text;
  for (int local_rank = 0; local_rank < plan.processes_per_machine(); ++local_rank) {
    text += worker_text(plan, local_rank, surroundings);
  }
  return text;
}

}  // namespace accelerate::cli
