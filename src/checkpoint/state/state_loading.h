// How the ranks load one checkpoint together.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <vector>

#include "accelerate/checkpoint.h"
#include "accelerate/communicator.h"
#include "checkpoint/state/state_candidates.h"
#include "checkpoint/state/state_part.h"
#include "checkpoint/state/state_saving.h"

namespace accelerate::checkpoint {

struct LoadSteps {
  // The directories of this rank's group, see load_candidates(); asked on leaders alone.
  std::function<std::vector<Candidate>()> candidates;
  // The parts to load from that directory, in the order in which they are applied. Hooks run here.
  std::function<StateParts(const std::filesystem::path& directory)> parts;
  // Called when all parts fit on all ranks, before the first of them is changed for good: an error
  // after that leaves the training changed in part. May be empty.
  std::function<void(const std::filesystem::path& directory)> begin{};
};

// Takes the first of the agreed candidates; with LoadOptions::fall_back the first that is
// undamaged. Reads and checks all parts on all ranks, and applies them if nothing is wrong
// anywhere; else throws on all ranks alike, and nothing has changed before steps.begin(). Returns
// the reader of what was loaded, nothing where LoadOptions::if_any was set and there was none.
// Reading may outlast the timeout of the group. Collective: all ranks.
std::optional<StateReader> load_checkpoint(Communicator& ranks, const SaveGroup& group,
                                           const LoadSteps& steps, const LoadOptions& options);

}  // namespace accelerate::checkpoint
