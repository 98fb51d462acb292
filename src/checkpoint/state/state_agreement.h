// One outcome for all ranks of a save or a load.
#pragma once

#include <functional>

#include "accelerate/communicator.h"
#include "comm/agreement.h"

namespace accelerate::checkpoint {

struct AgreementOptions {
  // Reading and writing may outlast the timeout of the group: see without_timeout(). The work must
  // not talk to other ranks then.
  bool takes_long = false;
  // For work that compares ranks: those that failed throw their own error.
  bool keep_own = false;
  // Run on all ranks before any of them throws.
  std::function<void()> take_back{};
};

// comm::together() with the errors of checkpoints: if `work` throws on some ranks, throws on all of
// them, that rank included, the error of the first such rank as UsageError where it is one and as
// CheckpointError otherwise, stamped with that rank. Throws CommError at once if `ranks` are lost.
// Collective; one small exchange.
void agree(Communicator& ranks, const std::function<void()>& work,
           const AgreementOptions& options = {});

// Throws it so.
[[noreturn]] void throw_of_checkpoint(const Communicator& ranks, const comm::RankFailure& failure);

}  // namespace accelerate::checkpoint
