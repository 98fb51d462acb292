// What an allocation of a scheduler, such as that of sbatch, decides of a run.
#pragma once

#include <string>

#include "config/settings.h"
#include "launch/plan/allocation.h"

namespace accelerate::cli {

// Whether nobody keeps the run on one machine, or starts several by hand, each with its rank. What
// a file says of one machine is its preset.
bool is_left_to_allocation(const config::Settings& settings);

// Fills in what the user left open from `allocation`, the one that this process runs in, if the
// settings are left to it; each such value is then one that was detected. A flag, a variable and
// what a file says beyond its presets count before the allocation, but a number of machines that an
// allocation of several does not have is refused. A file for one machine does not
// keep a job on one machine of several: its num_processes is then for each of them, unless the
// scheduler was asked for workers.
//
// Returns a sentence that names what the file says and the allocation overrules; "" if nothing.
// Throws ConfigError if the values contradict each other.
std::string take_allocation(const launch::Allocation& allocation, config::Settings& settings);

}  // namespace accelerate::cli
