#include "cli/commands/launch_notes.h"

#include "accelerate/errors.h"
#include "base/word_list.h"
#include "config/worker_variables.h"
#include "launch/plan/machine.h"

namespace accelerate::cli {
namespace {

using config::Effect;
using config::Settings;

// Workers that shard say themselves which settings of it have no effect.
bool is_told_by_workers(const std::string& name) {
  return name.find("fsdp_") != std::string::npos || name.find("zero3_") != std::string::npos ||
         name.find("deepspeed_moe_") != std::string::npos;
}

std::string note_on_effects(const Settings& settings) {
  const auto none = config::settings_of_effect(settings, Effect::kNone);
  auto forwarded = config::settings_of_effect(settings, Effect::kForwarded);
  std::erase_if(forwarded, is_told_by_workers);
  std::string text;
  if (!none.empty()) text = "without effect: " + joined(none);
  if (!forwarded.empty()) {
    text += (text.empty() ? "" : "; ") +
            ("passed on to the workers, but not used by native programs: " + joined(forwarded));
  }
  return text;
}

bool names_gpus(const Settings& settings) {
  const std::string ids = settings.text("gpu_ids");
  return !ids.empty() && ids != "all";
}

// Settings say how many workers there are, the plan leaves it to the slots of the host file.
std::string note_on_slots(const Settings& settings, const launch::LaunchPlan& plan) {
  const config::SettingValue& processes = settings["num_processes"];
  if (plan.num_processes > 0 || !processes.is_given()) return "";
  return "the number of workers comes from the host file; ignored: num_processes " +
         *processes.text + " (" + processes.source.where + ")";
}

}  // namespace

std::string note_on_gpus(const Settings& settings, int present, int visible) {
  if (settings.is_on("cpu")) return "";
  // gpu_ids replaces what CUDA_VISIBLE_DEVICES says of this process.
  const bool is_named = names_gpus(settings);
  if (is_named ? present > 0 : visible > 0 || !settings.is_on("multi_gpu")) return "";
  const char* name = is_named ? "gpu_ids" : "multi_gpu";
  const std::string hidden = present > 0 ? "CUDA_VISIBLE_DEVICES hides all GPUs of this machine"
                                         : "no NVIDIA GPU was found on this machine";
  return hidden + ", although " + config::place_of(settings[name].source) + " asks for some";
}

namespace {

// GPUs of other machines are not known here.
std::string missing_gpus(const Settings& settings, launch::LauncherKind launcher) {
  if (launcher != launch::LauncherKind::kLocal) return "";
  return note_on_gpus(settings, launch::present_gpus(), launch::visible_gpus());
}

}  // namespace

void refuse_missing_gpus(const Settings& settings, launch::LauncherKind launcher) {
  const std::string what = missing_gpus(settings, launcher);
  if (what.empty() || !settings.is_on("multi_gpu")) return;
  throw ConfigError({.what = what,
                     .where = config::place_of(settings["multi_gpu"].source),
                     .hint = "--cpu, to run the processes on the CPU"});
}

std::vector<std::string> launch_notes(const Settings& settings, const launch::LaunchPlan& plan) {
  std::vector<std::string> notes;
  if (const std::string effects = note_on_effects(settings); !effects.empty()) {
    notes.push_back(effects);
  }
  if (const std::string slots = note_on_slots(settings, plan); !slots.empty()) {
    notes.push_back(slots);
  }
  // With multi_gpu it is refused.
  if (const std::string gpus = missing_gpus(settings, plan.launcher);
      !gpus.empty() && !settings.is_on("multi_gpu")) {
    notes.push_back(gpus + ": workers that find no GPU run on the CPU");
  }
  return notes;
}

}  // namespace accelerate::cli
