// What settings demand of each other.
#include <algorithm>
#include <string>
#include <vector>

#include "accelerate/errors.h"
#include "base/printable_text.h"
#include "config/capabilities.h"
#include "config/schema.h"
#include "config/settings.h"

namespace accelerate::config {
namespace {

[[noreturn]] void refuse_combination(const Settings& settings, std::string_view name,
                                     std::string what, std::string hint) {
  throw ConfigError(
      {.what = std::move(what), .where = place_of(settings[name].source), .hint = std::move(hint)});
}

// A hint that helps only programs that may use `capability`: native ones are told to leave out the
// flag that led there, where this build would refuse them next.
std::string hint_for(Capability capability, const std::string& hint, const std::string& flag) {
  if (is_in_this_build(capability)) return hint;
  return "leave " + flag + " out; a Python program: " + hint;
}

void check_program(const Settings& settings) {
  if (settings.is_on("module") && settings.is_on("no_python")) {
    refuse_combination(settings, "no_python", "--module and --no_python cannot be used together",
                       "a module is always run by Python: leave --no_python out");
  }
}

// Whether shards of this kind are for CPUs as well as for GPUs. Python's library has them on GPUs
// alone, where this build has none.
bool shards_on_cpus(std::string_view name) {
  if (name == "use_deepspeed") return is_in_this_build(Capability::kDeepspeed);
  return name == "use_fsdp" && is_in_this_build(Capability::kFsdp);
}

void check_paradigm(const Settings& settings) {
  std::vector<std::string> chosen;
  for (const char* name : {"cpu", "multi_gpu", "tpu", "use_deepspeed", "use_fsdp"}) {
    if (!settings.is_on(name)) continue;
    // A file may say both that it is for FSDP and that it is for CPUs.
    if (name == std::string_view("cpu") && settings["cpu"].source.kind == ValueSource::kFile)
      continue;
    chosen.emplace_back(name);
  }
  if (chosen.size() == 2 && chosen[0] == "cpu" && shards_on_cpus(chosen[1])) return;
  if (chosen.size() < 2) return;
  // Left alone, the other one would be refused next.
  std::string hint = "leave one of them out";
  for (const CapabilityRow& row : kCapabilities) {
    const bool is_chosen = std::ranges::find(chosen, row.setting) != chosen.end();
    if (is_chosen && !row.is_in_this_build) {
      hint = "leave --" + std::string(row.setting) + " out: " + std::string(row.name) +
             " is not part of this build";
    }
  }
  refuse_combination(settings, chosen[1],
                     chosen[0] + " and " + chosen[1] + " cannot be used together", hint);
}

void check_processes(const Settings& settings) {
  const int processes = settings.integer("num_processes").value_or(1);
  const int machines = settings.integer("num_machines").value_or(1);
  const int rank = settings.integer("machine_rank").value_or(0);
  if (settings["multi_gpu"].source.kind == ValueSource::kFlag && settings.is_on("multi_gpu") &&
      settings["num_processes"].source.kind == ValueSource::kFlag && processes < 2) {
    refuse_combination(settings, "num_processes", "--multi_gpu needs at least 2 processes",
                       "--num_processes 2");
  }
  if (processes % machines != 0) {
    refuse_combination(settings, "num_processes",
                       std::to_string(processes) + " processes cannot be shared evenly by " +
                           std::to_string(machines) + " machines",
                       "--num_processes counts the workers of all machines together");
  }
  if (const int least = settings.integer("min_machines").value_or(machines); least > machines) {
    refuse_combination(settings, "min_machines",
                       "at least " + std::to_string(least) + " machines are asked for, and " +
                           std::to_string(machines) + " at most",
                       "--num_machines 2:4, the smaller number first");
  }
  if (rank >= machines) {
    refuse_combination(settings, "machine_rank",
                       "machine_rank is " + std::to_string(rank) + ", but there are " +
                           std::to_string(machines) + " machines, counted from 0",
                       "--num_machines counts the machines");
  }
}

void check_gpu_ids(const Settings& settings) {
  const std::string ids = settings.text("gpu_ids");
  if (ids.empty() || ids == "all") return;
  if (!is_gpu_list(ids)) {
    refuse_combination(settings, "gpu_ids", "gpu_ids cannot be '" + printable_text(ids) + "'",
                       "numbers separated by commas, as in 0,1, or all");
  }
  if (settings.is_on("multi_gpu") && list_parts(ids).size() < 2 &&
      settings.integer("num_machines").value_or(1) <= 1) {
    refuse_combination(settings, "gpu_ids", "only one GPU is named for training on several",
                       "name at least two GPUs, or --gpu_ids all");
  }
}

void check_sharding(const Settings& settings) {
  const bool is_fsdp_2 = settings.is_on("use_fsdp") && settings.text("fsdp_version") == "2";
  const bool is_deepspeed_file =
      settings.is_on("use_deepspeed") &&
      settings["use_parallelism_config"].source.kind == ValueSource::kFile;
  if (settings.is_on("use_parallelism_config") && !is_fsdp_2 && !is_deepspeed_file) {
    refuse_combination(
        settings, "use_parallelism_config",
        "--use_parallelism_config needs --use_fsdp and --fsdp_version 2",
        hint_for(Capability::kMesh, "--use_fsdp --fsdp_version 2 --use_parallelism_config",
                 "--use_parallelism_config"));
  }
  if (settings.is_on("use_fsdp") && settings.is_on("fsdp_cpu_ram_efficient_loading") &&
      !settings.is_on("fsdp_sync_module_states")) {
    refuse_combination(
        settings, "fsdp_sync_module_states",
        "fsdp_cpu_ram_efficient_loading needs fsdp_sync_module_states: the other ranks get "
        "their weights from rank 0",
        hint_for(Capability::kFsdp, "--fsdp_sync_module_states true", "--use_fsdp"));
  }
}

}  // namespace

void check_together(const Settings& settings) {
  check_program(settings);
  check_paradigm(settings);
  check_processes(settings);
  check_gpu_ids(settings);
  check_sharding(settings);
}

}  // namespace accelerate::config
