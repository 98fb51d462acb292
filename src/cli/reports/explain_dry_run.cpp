#include "cli/reports/explain_dry_run.h"

#include <algorithm>
#include <array>
#include <set>
#include <string_view>
#include <vector>

#include "base/word_list.h"
#include "launch/job/job.h"
#include "launch/plan/machine.h"
#include "launch/plan/shell_words.h"
#include "launch/plan/worker_environment.h"

namespace accelerate::cli {
namespace {

using launch::JobPreview;
using launch::LauncherKind;
using launch::LaunchPlan;
using launch::WorkerContext;

bool is_secret(const std::string& name) {
  constexpr std::array<std::string_view, 4> kParts = {"TOKEN", "KEY", "SECRET", "PASSWORD"};
  return std::any_of(kParts.begin(), kParts.end(),
                     [&](std::string_view part) { return name.find(part) != std::string::npos; });
}

// Where machines have a launcher each, they agree on what is asked for here when they start.
bool has_launcher_on_each_machine(const LaunchPlan& plan) {
  if (plan.launcher == LauncherKind::kLocal) return plan.num_machines > 1;
  return plan.launcher != LauncherKind::kMpirun;
}

std::string port_text(const JobPreview& preview) {
  const launch::JobPlan& plan = preview.plan;
  if (plan.num_machines > 1 && has_launcher_on_each_machine(plan)) {
    return "(a free one on machine 0)";
  }
  if (plan.main_port == 0) return "(a free one)";
  const bool differs = plan.has_drawn_port && plan.has_made_up_run_id;
  return differs ? "(drawn)" : std::to_string(plan.main_port);
}

// What is decided only when the job runs, or must not be read by everyone; "": the value as it is.
std::string remark_on(const std::string& name, const JobPreview& preview) {
  const launch::JobPlan& plan = preview.plan;
  if (name == "MASTER_PORT") return port_text(preview);
  if (name == "TORCHELASTIC_RUN_ID" && plan.has_made_up_run_id) {
    const bool is_member = plan.launcher == LauncherKind::kLocal && plan.machine_rank > 0;
    return is_member ? "(that of machine 0)" : "(generated)";
  }
  const bool unknown_first = plan.launcher == LauncherKind::kSlurm && plan.main_address.empty();
  if (name == "MASTER_ADDR" && unknown_first && plan.num_machines > 1) {
    return "(the first machine of the allocation)";
  }
  const bool is_elsewhere =
      plan.launcher == LauncherKind::kSlurm || plan.launcher == LauncherKind::kSsh;
  if (name == "OMP_NUM_THREADS" && is_elsewhere && !plan.num_cpu_threads_per_process) {
    return "(an equal share of the cores there)";
  }
  return is_secret(name) ? "(hidden)" : "";
}

// The variables of a worker that this process does not have alike, a line each.
std::vector<std::string> variable_lines_of(const JobPreview& preview, const LaunchPlan& plan,
                                           int local_rank) {
  const WorkerContext context{.inherited = launch::current_environment(),
                              .cores = launch::available_cores()};
  const std::set<std::string> inherited(context.inherited.begin(), context.inherited.end());
  std::vector<std::string> variables = launch::worker_environment(plan, local_rank, context);
  std::sort(variables.begin(), variables.end());
  std::vector<std::string> lines;
  for (const std::string& variable : variables) {
    if (inherited.count(variable) > 0) continue;
    const size_t equals = variable.find('=');
    const std::string remark = remark_on(variable.substr(0, equals), preview);
    const std::string value =
        remark.empty() ? launch::shell_line({variable.substr(equals + 1)}) : remark;
    lines.push_back("  " + variable.substr(0, equals + 1) + value + "\n");
  }
  return lines;
}

struct RankLines {
  int rank = 0;
  std::vector<std::string> lines{};
};

std::vector<RankLines> lines_of_machine(const JobPreview& preview, int machine) {
  LaunchPlan plan = preview.plan;
  plan.machine_rank = machine;
  std::vector<RankLines> ranks;
  for (int local_rank = 0; local_rank < plan.processes_per_machine(); ++local_rank) {
    ranks.push_back({machine * plan.processes_per_machine() + local_rank,
                     variable_lines_of(preview, plan, local_rank)});
  }
  return ranks;
}

// What all ranks have in common stands once, before what each has of its own.
std::string workers_text(const LaunchPlan& plan, const std::vector<RankLines>& ranks) {
  const auto is_common = [&](const std::string& line) {
    return std::all_of(ranks.begin(), ranks.end(), [&](const RankLines& rank) {
      return std::find(rank.lines.begin(), rank.lines.end(), line) != rank.lines.end();
    });
  };
  const std::string command = "  " + launch::shell_line(plan.command) + "\n";
  std::string common;
  std::string own;
  for (const RankLines& rank : ranks) {
    own += "rank " + std::to_string(rank.rank) + "\n";
    for (const std::string& line : rank.lines) {
      const bool is_told_once = ranks.size() > 1 && is_common(line);
      if (!is_told_once) own += line;
      if (is_told_once && &rank == &ranks.front()) common += line;
    }
  }
  return ranks.size() > 1 ? "all ranks\n" + common + command + own : own + command;
}

}  // namespace

std::string dry_run_text(const LaunchPlan& asked) {
  const JobPreview preview = launch::preview_job(asked);
  const LaunchPlan& plan = preview.plan;
  if (plan.launcher == LauncherKind::kLocal) {
    return workers_text(plan, lines_of_machine(preview, plan.machine_rank));
  }
  if (plan.launcher == LauncherKind::kMpirun) {
    return "mpirun\n" + joined(variable_lines_of(preview, plan, 0), "") + "  " +
           launch::shell_line(preview.commands.front()) + "\n";
  }
  std::string text;
  for (size_t i = 0; i < preview.commands.size(); ++i) {
    const bool is_ssh = plan.launcher == LauncherKind::kSsh;
    text += (is_ssh ? "ssh to machine " + std::to_string(i) : std::string("srun")) + "\n  " +
            launch::shell_line(preview.commands[i]) + "\n";
  }
  std::vector<RankLines> ranks;
  for (int machine = 0; machine < plan.num_machines; ++machine) {
    for (RankLines& rank : lines_of_machine(preview, machine)) ranks.push_back(std::move(rank));
  }
  return text + workers_text(plan, ranks);
}

}  // namespace accelerate::cli
