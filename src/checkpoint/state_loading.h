// How the ranks load one checkpoint together.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "accelerate/checkpoint.h"
#include "accelerate/communicator.h"
#include "checkpoint/state_part.h"
#include "checkpoint/state_saving.h"

namespace accelerate::checkpoint {

// The directories that load_state(directory) may take, best first: `directory` itself and, to fall
// back on, the complete ones of its series with smaller numbers. Without a directory those of
// automatic naming in `series_folder`, newest first: complete ones or, where there is none with a
// manifest, the one with the largest number that the Python library has written. Throws
// CheckpointError if there is none.
std::vector<std::filesystem::path> load_candidates(const std::filesystem::path& directory,
                                                   const std::filesystem::path& series_folder,
                                                   bool fall_back);

struct LoadSteps {
  // The directories of this rank's group; asked on leaders alone.
  std::function<std::vector<std::filesystem::path>()> candidates;
  // The parts to load from that directory, in the order in which they are applied. Hooks run here.
  std::function<StateParts(const std::filesystem::path& directory)> parts;
};

// Takes the first candidate that is undamaged, or only the first without LoadOptions::fall_back.
// Reads and checks all parts on all ranks, and applies them if nothing is wrong anywhere; else
// throws on all ranks alike, and nothing has changed. Returns the reader of what was loaded.
// Collective: all ranks.
StateReader load_checkpoint(Communicator& ranks, const SaveGroup& group, const LoadSteps& steps,
                            const LoadOptions& options);

}  // namespace accelerate::checkpoint
