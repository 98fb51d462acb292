#include "launch/plan/resolve_job.h"

#include <stdlib.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <functional>

#include "accelerate/errors.h"
#include "base/port_of_name.h"
#include "base/random_id.h"
#include "launch/plan/machine.h"

namespace accelerate::launch {
namespace {

namespace fs = std::filesystem;

constexpr int kDefaultPort = 29500;  // torchrun's

// --- Which machines take part ------------------------------------------------------------------

std::vector<Host> hosts_of(const LaunchPlan& request) {
  if (request.hostfile.empty()) return {};
  std::vector<Host> hosts = read_hostfile(request.hostfile);
  if (request.num_machines > static_cast<int>(hosts.size())) {
    throw ConfigError({.what = "--num_machines " + std::to_string(request.num_machines) +
                               ", but the host file names " + std::to_string(hosts.size()),
                       .where = request.hostfile.string(),
                       .hint = "add machines to it, or ask for fewer"});
  }
  if (request.num_machines > 0) hosts.resize(static_cast<size_t>(request.num_machines));
  return hosts;
}

// --- How the workers are shared out ------------------------------------------------------------

void require_equal_slots(const LaunchPlan& request, const std::vector<Host>& hosts) {
  for (const Host& host : hosts) {
    if (host.slots == hosts.front().slots) continue;
    throw ConfigError({.what = hosts.front().name + " has " + std::to_string(hosts.front().slots) +
                               " slots, " + host.name + " has " + std::to_string(host.slots) +
                               ": every machine runs the same number of workers",
                       .where = request.hostfile.string(),
                       .hint = "give all the same slots, or name --num_processes, which is "
                               "divided evenly"});
  }
}

Shares shares_of(const LaunchPlan& request, const std::vector<Host>& hosts) {
  Shares shares{.processes = request.num_processes, .machines = request.num_machines};
  if (!hosts.empty()) shares.machines = static_cast<int>(hosts.size());
  if (shares.processes == 0 && !hosts.empty()) {
    require_equal_slots(request, hosts);
    shares.processes = shares.machines * hosts.front().slots;
  }
  if (shares.processes == 0) shares.processes = shares.machines;
  require_shares(shares, request.machine_rank);
  return shares;
}

// A rank that there is not would be a mistake in silence: it shows nothing of those that there are.
void require_tee_ranks(const LaunchPlan& request, const Shares& shares) {
  if (!request.tee || request.tee->of_rank.empty()) return;
  const int last = shares.of_machine() - 1;
  const int highest = request.tee->of_rank.rbegin()->first;
  if (highest <= last) return;
  throw ConfigError({.what = "--tee names local rank " + std::to_string(highest) +
                             ", but the last one of a machine is " + std::to_string(last),
                     .where = "--tee",
                     .hint = "local ranks count from 0 on every machine"});
}

// --- Where they meet, and what the job is called -----------------------------------------------

std::string address_of_main(const LaunchPlan& request, const Shares& shares,
                            const std::vector<Host>& hosts) {
  if (!request.main_address.empty()) return request.main_address;
  if (hosts.size() > 1) return address_of(hosts.front());
  if (shares.machines > 1 && request.launcher == LauncherKind::kLocal) {
    throw ConfigError({.what = "--num_machines " + std::to_string(shares.machines) +
                               " needs the address of the machine with --machine_rank 0",
                       .where = "--main_process_ip",
                       .hint = "--main_process_ip 10.0.0.1 --main_process_port 29500, on every "
                               "machine alike"});
  }
  return "";
}

// Members of a job learn its name from the main machine.
std::string name_of_run(const LaunchPlan& request) {
  const bool is_main = request.machine_rank == 0;
  return request.run_id.empty() && is_main ? random_id() : request.run_id;
}

int port_of_main(const LaunchPlan& request, const Shares& shares, const std::string& run_id) {
  if (shares.machines == 1 || request.main_port != 0) return request.main_port;
  return request.launcher == LauncherKind::kLocal ? kDefaultPort : port_of_name(run_id);
}

// --- Where their output goes -------------------------------------------------------------------

bool shows_all(const LaunchPlan& plan) {
  for (int local_rank = 0; local_rank < plan.processes_per_machine(); ++local_rank) {
    if (plan.tee->streams_of(local_rank) != (Tee::kOut | Tee::kErr)) return false;
  }
  return true;
}

fs::path make_log_folder() {
  const char* base = std::getenv("TMPDIR");
  std::string folder =
      std::string(base != nullptr && *base != '\0' ? base : "/tmp") + "/accelerate_XXXXXX";
  if (mkdtemp(folder.data()) != nullptr) return folder;
  throw ConfigError({.what = "cannot make " + folder + ": " + std::strerror(errno),
                     .where = "--tee",
                     .hint = "name a folder with --log_dir"});
}

// The number of the first run, from that of `plan` on, whose folder holds nothing of these ranks.
int free_run(const LaunchPlan& plan, const std::function<fs::path(int)>& folder_of_run) {
  const bool is_own_share = plan.launcher == LauncherKind::kLocal;
  const int first = is_own_share ? plan.machine_rank * plan.processes_per_machine() : 0;
  const int count = is_own_share ? plan.processes_per_machine() : plan.num_processes;
  const auto holds_logs = [&](const fs::path& folder) {
    std::error_code error;
    for (int rank = first; rank < first + count; ++rank) {
      if (fs::exists(folder / ("rank_" + std::to_string(rank)), error)) return true;
    }
    return false;
  };
  int run = plan.log_run;
  while (holds_logs(folder_of_run(run))) ++run;
  return run;
}

}  // namespace

void require_shares(const Shares& shares, int machine_rank) {
  if (shares.machines < 1 || machine_rank < 0 || machine_rank >= shares.machines) {
    throw ConfigError({.what = "--machine_rank " + std::to_string(machine_rank) +
                               " is not below --num_machines " + std::to_string(shares.machines),
                       .where = "--machine_rank",
                       .hint = "machines count from 0"});
  }
  if (shares.processes >= 1 && shares.processes % shares.machines == 0) return;
  throw ConfigError({.what = std::to_string(shares.processes) +
                             " processes cannot be divided evenly among " +
                             std::to_string(shares.machines) + " machines",
                     .where = "--num_processes",
                     .hint = "it counts the processes of all machines together"});
}

JobPlan resolve(const LaunchPlan& request) {
  const std::vector<Host> hosts = hosts_of(request);
  const Shares shares = shares_of(request, hosts);
  require_tee_ranks(request, shares);
  const std::string address = address_of_main(request, shares, hosts);
  if (request.launcher == LauncherKind::kSsh && hosts.empty()) {
    throw ConfigError({.what = "--launcher ssh needs the list of machines",
                       .where = "--hostfile",
                       .hint = "a file with one machine per line, such as: node1 slots=2"});
  }
  if (request.has_range() && request.launcher != LauncherKind::kLocal) {
    throw ConfigError({.what = "a job with a range of machines needs a launcher of its own on each",
                       .where = "--num_machines, --min_machines",
                       .hint = "start accelerate launch on every machine with its --machine_rank, "
                               "without --launcher"});
  }
  const std::string run_id = name_of_run(request);
  const int port = port_of_main(request, shares, run_id);

  JobPlan job{request};
  job.num_processes = shares.processes;
  job.num_machines = shares.machines;
  job.main_address = address;
  job.main_port = port;
  job.run_id = run_id;
  job.hosts = hosts;
  job.has_made_up_run_id = request.run_id.empty();
  job.has_drawn_port = request.main_port == 0;
  return job;
}

LogPlace place_of_logs(const LaunchPlan& plan) {
  if (plan.log_dir.empty()) {
    if (!plan.tee || shows_all(plan)) return {};
    const fs::path made = make_log_folder();
    return {.folder = made, .notes = {"the output of all ranks goes to " + made.string()}};
  }
  const fs::path named = plan.log_run > 1 ? plan.log_dir.parent_path() : plan.log_dir;
  const auto folder_of_run = [&](int run) {
    return run > 1 ? named / ("run_" + std::to_string(run)) : named;
  };
  const int run = free_run(plan, folder_of_run);
  LogPlace place{.folder = folder_of_run(run), .run = run};
  if (run == plan.log_run) return place;
  const bool is_one_of_several = plan.num_machines > 1 && plan.launcher == LauncherKind::kLocal;
  place.notes.push_back(named.string() + (is_one_of_several ? " on " + short_host_name() : "") +
                        " holds the output of an earlier run; this one goes to " +
                        place.folder.string());
  return place;
}

}  // namespace accelerate::launch
