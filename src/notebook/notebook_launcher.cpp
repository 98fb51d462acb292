#include <algorithm>

#include "accelerate/notebook.h"
#include "launch/plan/machine.h"
#include "launch/plan/port_reservation.h"
#include "notebook/first_failure.h"
#include "notebook/fork_safety.h"
#include "notebook/guardian.h"
#include "notebook/worker_variables.h"

namespace accelerate::detail {
namespace {

constexpr int kPortOfSeveralNodes = 29500;

[[noreturn]] void refuse(std::string_view caller, const std::string& what, const char* hint) {
  throw UsageError({.what = std::string(caller) + ": " + what, .hint = hint});
}

int check_options(std::string_view caller, const NotebookOptions& options) {
  const int num_processes =
      options.num_processes.value_or(options.cpu ? 1 : std::max(1, launch::visible_gpus()));
  if (num_processes < 1) {
    refuse(caller, "num_processes is " + std::to_string(num_processes), "ask for at least one");
  }
  if (options.num_nodes < 1 || options.node_rank < 0 || options.node_rank >= options.num_nodes) {
    refuse(caller,
           "node_rank is " + std::to_string(options.node_rank) + " of num_nodes " +
               std::to_string(options.num_nodes),
           "nodes count from 0");
  }
  if (options.num_nodes > 1 && options.max_restarts > 0) {
    refuse(caller, "max_restarts needs all workers on one node",
           "restart the call on all nodes, or use 'accelerate launch'");
  }
  if (options.max_restarts < 0) refuse(caller, "max_restarts is negative", "use 0 for none");
  if (options.num_cpu_threads_per_process && *options.num_cpu_threads_per_process < 1) {
    refuse(caller, "num_cpu_threads_per_process is not positive",
           "leave it out to share the cores");
  }
  if (options.use_port && (*options.use_port < 1 || *options.use_port > 65535)) {
    refuse(caller, "use_port is not a port number", "leave it out and a free one is picked");
  }
  return num_processes;
}

// Nothing on nodes where rank 0 is not.
std::optional<launch::PortReservation> reserve_port(const NotebookOptions& options) {
  if (options.node_rank > 0) return std::nullopt;
  if (!options.use_port && options.num_nodes == 1) return launch::PortReservation::any();
  try {
    return launch::PortReservation::of(options.use_port.value_or(kPortOfSeveralNodes));
  } catch (const ConfigError& error) {
    throw ConfigError(
        {.what = error.message(),
         .where = "NotebookOptions::use_port",
         .hint = "name another port, the same on all nodes; on one node leave it out"});
  }
}

std::vector<notebook::ForkedEnd> run_attempt(const NotebookOptions& options, int num_processes,
                                             int attempt, const WorkerBody& body) {
  const std::optional<launch::PortReservation> reservation = reserve_port(options);
  const int port =
      reservation ? reservation->port() : options.use_port.value_or(kPortOfSeveralNodes);
  const std::vector<notebook::ReportFile> reports(static_cast<size_t>(num_processes));
  std::vector<notebook::ForkedStart> starts;
  for (int local_rank = 0; local_rank < num_processes; ++local_rank) {
    starts.push_back({.rank = options.node_rank * num_processes + local_rank,
                      .environment = notebook::worker_variables(options, num_processes, port,
                                                                local_rank, attempt),
                      .body = body,
                      .report = reports[static_cast<size_t>(local_rank)]});
  }
  return notebook::run_guarded(starts, options.grace);
}

// The only worker. An exception passes unchanged once no restart is left.
PackedValue run_in_place(const NotebookOptions& options, const WorkerBody& body) {
  for (int attempt = 0;; ++attempt) {
    try {
      const notebook::VariablesInPlace variables(options, attempt);
      return body();
    } catch (...) {
      if (attempt == options.max_restarts) throw;
    }
  }
}

}  // namespace

std::vector<PackedValue> run_workers(std::string_view caller, const NotebookOptions& options,
                                     const WorkerBody& body) {
  const notebook::OneLaunch launch(caller);
  const int num_processes = check_options(caller, options);
  const int world_size = num_processes * options.num_nodes;
  notebook::require_no_ranks(caller);
  if (world_size == 1) return {run_in_place(options, body)};
  notebook::require_no_cuda(caller);
  for (int attempt = 0;; ++attempt) {
    std::vector<notebook::ForkedEnd> ends = run_attempt(options, num_processes, attempt, body);
    const std::optional<WorkerError> failure = notebook::first_failure(ends, world_size);
    if (failure && attempt == options.max_restarts) throw *failure;
    if (failure) continue;
    std::vector<PackedValue> results;
    for (notebook::ForkedEnd& end : ends) results.push_back(std::move(end.report->result));
    return results;
  }
}

}  // namespace accelerate::detail
