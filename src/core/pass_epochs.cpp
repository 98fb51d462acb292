#include "core/pass_epochs.h"

#include <string>

#include "accelerate/log.h"
#include "comm/groups/communicator_impl.h"

namespace accelerate {

void PassEpochs::at_end(int64_t epoch) {
  const int64_t passes = passes_;
  // Only the first end after a backward pass is that of the training.
  if (!is_on_ || compared_.exchange(passes) == passes) return;
  const std::string own = std::to_string(epoch);
  const auto first = comm::impl_of(*ranks_).first_value("epoch/" + std::to_string(passes), own);
  if (!first || first->value == own) return;
  is_on_ = false;
  log(LogLevel::kWarning,
      "this pass over the data was epoch " + own + " on this rank and epoch " + first->value +
          " on rank " + std::to_string(first->rank) +
          ": if the loader shuffles, some samples were seen twice and others not at all. One of "
          "the "
          "ranks has gone through a prepared loader alone, for example to evaluate, or set_epoch() "
          "differs: make passes over prepared loaders on all ranks");
}

}  // namespace accelerate
