// What `accelerate checkpoint` says about checkpoints, as text for people or as JSON.
#pragma once

#include <string>
#include <vector>

#include "files/manifest/checkpoint_directory.h"

namespace accelerate::cli {

struct CheckpointReport {
  std::string text{};
  bool all_complete = true;
};

// One line a checkpoint.
CheckpointReport list_report(const std::vector<files::CheckpointEntry>& entries, bool json);

// Reads all bytes of all of them.
CheckpointReport verify_report(const std::vector<files::CheckpointEntry>& entries, bool json);

// Everything in the manifests but the state.
CheckpointReport show_report(const std::vector<files::CheckpointEntry>& entries, bool json);

}  // namespace accelerate::cli
