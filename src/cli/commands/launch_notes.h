// What `accelerate launch` says before it starts anything: nothing that was asked for is dropped in
// silence.
#pragma once

#include <string>
#include <vector>

#include "config/settings.h"
#include "launch/plan/launch_plan.h"

namespace accelerate::cli {

// A sentence each: settings without effect here, workers of a configuration file where a host file
// says how many there are, and gpu_ids where there are no GPUs. `plan` is what `settings` became.
std::vector<std::string> launch_notes(const config::Settings& settings,
                                      const launch::LaunchPlan& plan);

// Throws ConfigError where several GPUs of this machine are asked for and there are none. To be
// called where workers would start.
void refuse_missing_gpus(const config::Settings& settings, launch::LauncherKind launcher);

// What both say for a machine whose driver shows `present` GPUs, of which this process may see
// `visible`; "" where nothing is wrong.
std::string note_on_gpus(const config::Settings& settings, int present, int visible);

}  // namespace accelerate::cli
