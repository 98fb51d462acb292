// The number of the next checkpoint that is named automatically, in a checkpoint.
#pragma once

#include <filesystem>
#include <memory>

#include "accelerate/checkpoint.h"
#include "accelerate/communicator.h"
#include "checkpoint/state/state_part.h"

namespace accelerate {

// A fact of the checkpoint. Loading sets ProjectOptions::iteration of `project` past what was
// loaded and, with automatic naming, past all numbers in `series_folder`, the same on all ranks: an
// old checkpoint is never overwritten. `looks`: whether this rank looks into the folder; at least
// one for each folder does.
std::unique_ptr<checkpoint::StatePart> iteration_part(ProjectOptions& project,
                                                      std::filesystem::path series_folder,
                                                      Communicator& ranks, bool looks);

}  // namespace accelerate
