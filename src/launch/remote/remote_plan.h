// A plan on its way to the launcher of another machine.
#pragma once

#include <string>
#include <vector>

#include "launch/plan/launch_plan.h"

namespace accelerate::launch {

struct RemotePlan {
  LaunchPlan plan{};
  std::string folder{};                    // to run in
  std::vector<std::string> environment{};  // NAME=value, on top of what the machine has
  bool place_from_slurm = false;           // srun tells which machine it is
  bool has_lifeline = false;               // signals come over descriptor 0
};

// One word without characters that a shell would touch. All users of the machine can read command
// lines, and they are limited in length: only where `remote` carries no environment.
std::string encode_remote_plan(const RemotePlan& remote);
// Throws UsageError if `text` is no such word.
RemotePlan decode_remote_plan(const std::string& text);

// The same for a stream, which may carry more after it.
std::string remote_plan_for_stream(const RemotePlan& remote);
// Reads it from `fd`, and nothing after it. Blocks until it is there. Throws UsageError if the
// stream ends before or holds something else.
RemotePlan read_remote_plan(int fd);

// Those variables of this process that a worker on another machine needs too: where programs and
// libraries are found, and the settings of the libraries that training uses.
std::vector<std::string> environment_to_carry();

}  // namespace accelerate::launch
