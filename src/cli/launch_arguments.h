// Where the launcher's own flags end and the program with its arguments begins.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace accelerate::cli {

struct LaunchArguments {
  std::vector<std::string> flags;              // for the launcher, long ones spelled with _
  std::string program;                         // "" if there is none
  std::vector<std::string> program_arguments;  // untouched
};

// Splits what follows `accelerate launch`. The first word that is neither a flag of `launch` nor
// the value of one is the program; all after it belongs to the program, whatever it looks like. In
// long flags - and _ are the same. Throws UsageError for a flag that `launch` does not have, with
// the nearest one that it has.
LaunchArguments split_launch_arguments(const CLI::App& launch,
                                       const std::vector<std::string>& arguments);

}  // namespace accelerate::cli
