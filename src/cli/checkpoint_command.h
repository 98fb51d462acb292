// accelerate checkpoint list|verify|show
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace accelerate::cli {

struct CheckpointOptions {
  enum class Action { kList, kVerify, kShow };
  Action action = Action::kList;
  std::string directory{};
  bool json = false;
};

// Adds the command to `app`; parsing fills `options`.
CLI::App* setup_checkpoint(CLI::App& app, CheckpointOptions& options);

// Prints what is asked for. Returns 0 if every checkpoint it looked at is complete (for verify: and
// all its bytes match), else 1. Throws CheckpointError if there is none.
int run_checkpoint(const CheckpointOptions& options);

}  // namespace accelerate::cli
