// The only list of the fields of a plan: what writes, reads or compares plans visits it.
#pragma once

#include "launch/plan/launch_plan.h"

namespace accelerate::launch {

// Calls visit(key, field) for every field that a launcher on another machine needs to know, and
// stays(key, field) for those that are of use here alone. `Plan` is LaunchPlan, const or not. A new
// field does not compile before it is named here.
template <class Plan, class Visit, class Stays>
void visit_fields(Plan& plan, Visit&& visit, Stays&& stays) {
  auto& [command, num_processes, num_machines, machine_rank, min_machines, main_address, main_port,
         same_network, use_cpu, mixed_precision, variables, gpu_ids, num_cpu_threads_per_process,
         cpu_affinity, prefix_output, log_dir, log_run, tee, quiet, repeat_last_lines, debug,
         run_dir, page_socket, page_token, max_restarts, monitor_interval, machine_timeout,
         join_timeout, last_call, failure_grace, signal_grace, launcher, hostfile, launcher_command,
         run_id] = plan;
  visit("command", command);
  visit("processes", num_processes);
  visit("machines", num_machines);
  visit("machine", machine_rank);
  visit("min_machines", min_machines);
  visit("address", main_address);
  visit("port", main_port);
  visit("same_network", same_network);
  visit("cpu", use_cpu);
  visit("precision", mixed_precision);
  visit("variables", variables);
  visit("gpus", gpu_ids);
  visit("threads", num_cpu_threads_per_process);
  visit("affinity", cpu_affinity);
  visit("prefix", prefix_output);
  visit("log_dir", log_dir);
  visit("log_run", log_run);
  visit("tee", tee);
  visit("quiet", quiet);
  visit("repeat", repeat_last_lines);
  visit("debug", debug);
  visit("run_dir", run_dir);
  visit("restarts", max_restarts);
  visit("monitor_ms", monitor_interval);
  visit("machine_ms", machine_timeout);
  visit("join_ms", join_timeout);
  visit("last_call_ms", last_call);
  visit("failure_ms", failure_grace);
  visit("signal_ms", signal_grace);
  visit("run", run_id);
  // One page for all machines.
  stays("page_socket", page_socket);
  stays("page_token", page_token);
  // The launcher there starts its workers itself.
  stays("launcher", launcher);
  stays("hostfile", hostfile);
  stays("launcher_command", launcher_command);
}

}  // namespace accelerate::launch
