// The command line of `accelerate launch`: its own flags, then the program with its arguments.
#pragma once

#include <string>
#include <vector>

#include "config/settings.h"

namespace accelerate::cli {

enum class HelpWanted { kNo, kShort, kAll };

struct LaunchArguments {
  std::vector<config::FlagValue> flags{};
  HelpWanted help = HelpWanted::kNo;
  std::string program{};                         // "" if there is none
  std::vector<std::string> program_arguments{};  // untouched
};

// Whose command line it is, for messages.
struct LaunchCaller {
  std::string name = "accelerate launch";
  bool takes_program = true;             // the user names one
  std::vector<std::string> own_flags{};  // long ones that it takes besides
};

// Reads what follows `accelerate launch`. The first word that is neither a flag of the schema nor
// the value of one is the program; all after it belongs to the program, whatever it looks like. In
// long flags - and _ are the same. Values are not checked yet. Throws UsageError for a flag that
// there is not, with the nearest one that there is, and for a flag without its value.
LaunchArguments parse_launch_arguments(const std::vector<std::string>& arguments,
                                       const LaunchCaller& caller = {});

}  // namespace accelerate::cli
