// Whether the ranks are in the same epoch when they come to the end of a pass over the data.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "accelerate/communicator.h"

namespace accelerate {

// A rank that goes through a prepared loader alone is an epoch ahead of the others from then on,
// and shuffles otherwise: samples come twice or not at all. Ranks that have averaged as many
// backward passes are in the same loop. Any thread; not collective: a rank meets nobody at the end
// of a pass that it makes alone.
class PassEpochs {
 public:
  explicit PassEpochs(std::shared_ptr<Communicator> ranks) : ranks_(std::move(ranks)) {}

  // A backward pass whose gradients all ranks average.
  void count_pass() { ++passes_; }
  // From here on the ranks may have made different numbers of such passes.
  void stop() { is_on_ = false; }
  // A pass over the data that was epoch `epoch` here is at its end. Warns once if it was another
  // one on the first rank that came here.
  void at_end(int64_t epoch);

 private:
  std::shared_ptr<Communicator> ranks_;
  std::atomic<bool> is_on_ = true;
  std::atomic<int64_t> passes_ = 0;
  std::atomic<int64_t> compared_ = 0;  // how many passes there were at the last comparison
};

}  // namespace accelerate
