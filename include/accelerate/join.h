// Training with different numbers of inputs on each rank.
#pragma once

#include <optional>

namespace accelerate {

// What the gradients of the ranks are divided by in a step that some ranks have no data for.
enum class JoinDivisor {
  // The number of ranks of the job, as torch does it: steps get smaller as ranks run out.
  kAllRanks,
  // The number of ranks that still have data: each step is the mean over those that took part.
  kParticipants,
  // The number of samples: each rank's gradient counts as often as it has samples behind it, those
  // of all batches since its last sync. In a loop over a prepared loader the batch says how many;
  // elsewhere, or to override it, pass BackwardOptions::samples; a pass of which nobody knows
  // counts 1.
  kSamples,
};

// Options of Accelerator::join_uneven_inputs, the same on all ranks.
struct JoinOptions {
  JoinDivisor divide_by = JoinDivisor::kParticipants;
  // Overrides ShardingOptions::even_batches of the prepared loaders inside the body.
  std::optional<bool> even_batches{};
  // Throw UsageError on all ranks as soon as one has run out of data and another has not.
  bool throw_on_early_end = false;
};

}  // namespace accelerate
