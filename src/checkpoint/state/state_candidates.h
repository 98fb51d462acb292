// Which checkpoint a load takes, of those that are there.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "accelerate/checkpoint.h"
#include "accelerate/communicator.h"
#include "checkpoint/state/state_saving.h"

namespace accelerate::checkpoint {

struct Candidate {
  std::filesystem::path directory{};
  std::string save_id{};  // empty if it has none, or cannot be read
};

// The directories that load_state(directory) may take, best first: `directory` itself and, to fall
// back on, the complete ones of its series with smaller numbers. Without a directory those of
// automatic naming in `series_folder`, newest first: complete ones or, where there is none with a
// manifest, the one with the largest number that the Python library has written; newer ones that
// are not complete are logged. Throws CheckpointError if there is none; under `if_any` only where
// something is there that is none.
std::vector<Candidate> load_candidates(const std::filesystem::path& directory,
                                       const std::filesystem::path& series_folder,
                                       const LoadOptions& options);

// The directories of this rank's leader for which every other leader has one of the same name, made
// by the same save as far as both say by which. In their order; none if no leader has any.
// `own` is asked on leaders alone. Throws CheckpointError on all ranks alike if there is none in
// common, or `own` throws. Collective: all ranks.
std::vector<std::filesystem::path> agreed_candidates(
    Communicator& ranks, const SaveGroup& group,
    const std::function<std::vector<Candidate>()>& own);

}  // namespace accelerate::checkpoint
