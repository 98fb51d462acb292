// Which samples of a pass each rank gets, as arithmetic: no libtorch, no memory that grows with the
// dataset.
#pragma once

#include <cstdint>

#include "accelerate/export.h"

namespace accelerate {

struct BatchShardOptions {
  int64_t n = 0;               // samples in one pass
  int64_t start = 0;           // the leading ones that were used up before: the rest is dealt out
  int64_t batch_size = 1;      // for each rank; with split_batches for all ranks together
  bool drop_last = false;      // complete rounds only
  bool split_batches = false;  // each batch of batch_size is cut into world_size equal parts
  bool even_batches = true;    // wrap around to the first samples so that all ranks run the same
                               // rounds with full batches
  int world_size = 1;
  int rank = 0;
};

// The batches of one rank in one pass. Position p is the p-th sample in sampler order; positions
// from n on wrap around to p mod n and only even out the last batch.
//
// Every call is O(1) and may come from any thread. Nothing is shared between ranks: all of them
// agree because they compute the same formula.
class ACCELERATE_EXPORT BatchShard {
 public:
  // One batch: positions first .. first + size - 1, of which the leading `valid` are real samples.
  struct Round {
    int64_t first = 0;
    int64_t size = 0;
    int64_t valid = 0;
  };

  // Throws UsageError if a size is out of range, the rank is not below world_size, or split_batches
  // is on and world_size does not divide batch_size.
  explicit BatchShard(const BatchShardOptions& options);

  // Batches of this rank. With even_batches or drop_last the same on every rank.
  int64_t rounds() const { return rounds_; }

  // The batch `k` of this rank, 0 <= k < rounds().
  Round round(int64_t k) const;

  // What all ranks together have used up of the pass after round `k`, at most n.
  int64_t used_after(int64_t k) const;
  // Samples that all ranks take in one round.
  int64_t stride() const { return stride_; }

  // The place in sampler order of `position`. Throws UsageError for a position below 0 and in a
  // pass without samples.
  int64_t wrapped(int64_t position) const;

 private:
  int64_t n_ = 0;
  int64_t start_ = 0;
  int64_t slots_ = 0;   // samples a full batch of this rank has
  int64_t stride_ = 0;  // samples all ranks take in one round
  int64_t offset_ = 0;  // where this rank's part of a round starts
  bool ragged_ = false;
  int64_t rounds_ = 0;
};

}  // namespace accelerate
