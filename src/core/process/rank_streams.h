// Random numbers that differ from rank to rank.
#pragma once

#include <c10/core/Device.h>

namespace accelerate {

// libtorch's own generators begin alike on all ranks after torch::manual_seed(), which weights need
// and noise, dropout and actions do not. One for each accelerator; one thread at a time.
class RankStreams {
 public:
  // `wanted`: false leaves the generators alone.
  RankStreams(int rank, c10::Device device, bool wanted)
      : rank_(rank), device_(device), separate_(!wanted || rank == 0) {}

  // At its first call gives the generators of this rank a seed made of theirs and the rank. Rank 0
  // goes on as it is.
  void separate();
  // The generators are now as a checkpoint had them.
  void set_separate() { separate_ = true; }

 private:
  int rank_;
  c10::Device device_;
  bool separate_;
};

}  // namespace accelerate
