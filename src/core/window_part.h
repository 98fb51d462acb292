// The open window of gradient accumulation in a checkpoint, and what else each rank has of its own.
#pragma once

#include <memory>
#include <optional>

#include "accelerate/process_state.h"
#include "checkpoint/state/state_part.h"
#include "core/training_state.h"

namespace accelerate {

// The counters of the window and the order in which gradients travel are facts of the checkpoint.
// rank_state_<rank>.bin, where there is something to put into it: weights of the losses so far,
// gradients that were not brought together yet, buffers where forward passes use the rank's own, a
// trigger that nobody has checked. On another number of ranks gradients and weights become their
// mean, for which the files of all old ranks must be there; buffers and what hooks keep is dropped,
// which is noted.
//
// `with_gradients`: whether gradients are saved; unset: inside a window.
std::unique_ptr<checkpoint::StatePart> window_part(const TrainingState& training,
                                                   const ProcessState& state,
                                                   std::optional<bool> with_gradients);

// Whether gradients are saved where the caller of save_state() wants `wanted`.
bool saves_gradients(const TrainingState& training, std::optional<bool> wanted);

}  // namespace accelerate
