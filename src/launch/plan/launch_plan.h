// What a job is. The command line makes a plan with open places, resolve() fills them, and a
// MachinePlan is what one launcher runs: each is made once and then only read.
#pragma once

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace accelerate::launch {

// What starts the workers.
enum class LauncherKind {
  kLocal,   // this process, on this machine; on several machines each has a launcher of its own
  kMpirun,  // mpirun starts the ranks, here or on the machines of a host file
  kSlurm,   // srun starts one launcher on each machine of the allocation
  kSsh,     // ssh starts one launcher on each machine of a host file
};

// Which output streams of which local ranks are shown beside being written to files.
struct Tee {
  static constexpr int kOut = 1;
  static constexpr int kErr = 2;

  int all_ranks = 0;             // kOut | kErr
  std::map<int, int> of_rank{};  // local rank -> streams; the ranks not named show none

  int streams_of(int local_rank) const {
    if (of_rank.empty()) return all_ranks;
    const auto found = of_rank.find(local_rank);
    return found == of_rank.end() ? 0 : found->second;
  }

  // "0", "1" (output), "2" (errors), "3" (both), or by local rank "0:3,1:2", as torchrun writes it.
  // Throws ConfigError that names --tee.
  static Tee parse(const std::string& text);
};

// All fields are listed in plan_fields.h once more.
struct LaunchPlan {
  std::vector<std::string> command{};  // argv of every worker; the first is the path of a file

  // --- who takes part
  // On all machines together; a multiple of num_machines. 0, with a host file: one a slot.
  int num_processes = 1;
  int num_machines = 1;  // 0, with a host file: all that it names
  int machine_rank = 0;
  // With how many machines at least an attempt may begin; 0: with all of them alone. A job with a
  // range goes on after machines were lost, also the main one, and takes in those that come for its
  // next attempt. num_processes is that of all num_machines.
  int min_machines = 0;
  // Where the main machine is met. On one machine rank 0 serves the rendezvous of the workers here.
  // On several the launcher of machine 0 listens here, and the launchers agree on the rest.
  std::string main_address{};  // "": this machine, where there is one
  int main_port = 0;           // 0: a free one, where there is one machine; else 29500
  bool same_network = false;   // main_address must be an address of machine 0, not one before it

  // --- what workers are told
  bool use_cpu = false;
  std::optional<std::string> mixed_precision{};  // no, fp16, bf16 or fp8; unset: the worker decides
  // Further variables that settings became, e.g. {"ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "4"}.
  // They replace inherited ones and those of the fields above, but never ranks and addresses.
  std::vector<std::pair<std::string, std::string>> variables{};
  std::optional<std::string>
      gpu_ids{};  // CUDA_VISIBLE_DEVICES of the workers; unset or "all": as is
  std::optional<int> num_cpu_threads_per_process{};  // unset: the cores shared out evenly
  bool cpu_affinity =
      false;  // each worker keeps to its own cores, those near its GPU if it has one

  // --- what becomes of their output
  bool prefix_output = false;       // "[rank 1] " before each line
  std::filesystem::path log_dir{};  // rank_N/stdout.log and stderr.log go here; "": no files
  int log_run = 1;                  // from 2 on log_dir is run_N in the folder that was named
  std::optional<Tee> tee{};         // unset: all is shown
  bool quiet = false;               // nothing from the launcher but errors
  bool repeat_last_lines = true;    // of the worker that failed, in the report
  bool debug = false;               // tell the command and process of what is started

  // --- who looks at it
  // Where the run is recorded, an absolute path; "": nowhere. Workers are told it too.
  std::filesystem::path run_dir{};
  int page_socket = -1;      // listening, for the page of the run; -1: there is none
  std::string page_token{};  // that readers of the page need; "": none

  // --- failure and end
  int max_restarts = 0;  // how often a job that failed begins anew, on all machines
  // Interval of the heartbeats between machines, at least; see beat_interval().
  std::chrono::milliseconds monitor_interval{100};
  std::chrono::milliseconds machine_timeout{30'000};  // silence after which a machine is lost
  std::chrono::milliseconds join_timeout{300'000};    // how long machines wait for each other
  // Once there are min_machines: how long those that are missing are waited for.
  std::chrono::milliseconds last_call{30'000};
  // How long workers may take to end, once another one failed or once the launcher was told to
  // stop, before they are killed. The second is longer: a worker may save its state then.
  std::chrono::milliseconds failure_grace{5'000};
  std::chrono::milliseconds signal_grace{30'000};

  // --- how workers are started
  LauncherKind launcher = LauncherKind::kLocal;
  std::filesystem::path hostfile{};  // mpirun and ssh: lines such as "node1 slots=2"
  // The mpirun, srun or ssh to run, with arguments if need be; "": found in PATH.
  std::string launcher_command{};
  std::string run_id{};  // tells this job from others; "": made up

  int processes_per_machine() const { return num_processes / num_machines; }
  bool has_range() const { return min_machines > 0 && min_machines < num_machines; }

  // A machine that is well is heard several times before it would be taken for lost.
  std::chrono::milliseconds beat_interval() const {
    return std::clamp<std::chrono::milliseconds>(
        machine_timeout / 3, std::chrono::milliseconds(1),
        std::max(monitor_interval, std::chrono::milliseconds(1)));
  }
};

// Sets what `text`, a list such as "join_timeout=60,machine_timeout=10" (seconds), says of the
// meeting of machines (--rdzv_conf). torchrun's names keep_alive_interval, keep_alive_max_attempt
// and timeout are understood. Throws ConfigError that names what it does not know.
void apply_rendezvous_settings(const std::string& text, LaunchPlan& plan);

}  // namespace accelerate::launch
