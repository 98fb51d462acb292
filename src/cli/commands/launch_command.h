// accelerate launch
#pragma once

#include <string>
#include <vector>

#include "cli/help/launch_arguments.h"
#include "config/config_file.h"
#include "config/settings.h"
#include "launch/plan/launch_plan.h"

namespace accelerate::cli {

// Runs `accelerate launch` with what follows these words; blocks until the job has ended. Returns
// the exit code of the program `accelerate`. Throws UsageError, ConfigError or ProgramError before
// any worker runs.
int run_launch(const std::vector<std::string>& arguments);

// The same for a program of our own, whose output says by itself what failed: the report of the
// launcher does not repeat its last lines.
int run_own_program(const std::vector<std::string>& arguments);

// The configuration file of a run: the one that is named, else the default one if it exists.
// Throws ConfigError as config::load_config_file().
std::optional<config::ConfigFile> find_config_file(const std::string& named);

// The settings of a run of this machine, of `flags`, this process's variables and `file`.
config::Settings settings_of_run(const std::vector<config::FlagValue>& flags,
                                 const config::ConfigFile* file);

// The job that `settings` describe. Throws as launch::worker_command().
launch::LaunchPlan make_launch_plan(const config::Settings& settings,
                                    const LaunchArguments& arguments);

}  // namespace accelerate::cli
