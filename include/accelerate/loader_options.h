// Options of a loader: from its maker (LoaderOptions) and from the accelerator (LoaderShard).
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "accelerate/rng_types.h"
#include "accelerate/samplers.h"

namespace accelerate {

class Communicator;

struct LoaderOptions {
  int64_t batch_size = 1;  // samples of a batch; for each rank unless split_batches is on
  bool shuffle = false;    // a new order each epoch, as random_sampler()
  bool drop_last = false;  // leave out what does not fill a batch on every rank
  // Threads that read and collate batches ahead of time. 0: the loop's thread does it. The order of
  // the batches does not depend on it; with workers the dataset must be safe to read from several
  // threads. A stream is read by one of them at a time.
  int num_workers = 0;
  int prefetch = 4;                // batches that each worker may be ahead
  std::optional<uint64_t> seed{};  // of the order; unset: the seed of torch's CPU generator
  // The order of the samples instead of `shuffle`; see samplers.h. Not for streams.
  std::shared_ptr<const Sampler> sampler{};
  // The batches instead of `batch_size`, `shuffle` and `sampler`. Not for streams.
  std::shared_ptr<const BatchSampler> batch_sampler{};
  // Put batches in page-locked memory, from which they reach a GPU faster. Unset: where the device
  // is a GPU. Without a GPU nothing is pinned.
  std::optional<bool> pin_memory{};
};

// How Accelerator::prepare cuts a loader.
struct LoaderShard {
  int rank = 0;
  int world_size = 1;
  bool split_batches = false;  // batch_size counts for all ranks together
  bool even_batches = true;    // full batches and as many of them on every rank
  c10::Device device{c10::kCPU};
  bool place_on_device = true;
  bool non_blocking = true;  // copy to a GPU on a stream of its own while the last batch computes
  uint64_t seed = 0;         // of the order, agreed by all ranks
  // Only rank 0 reads, and sends every rank its part.
  bool dispatch = false;
  // With `dispatch`: the samples that rank 0 has (batches of a foreign loader; -1: it does not
  // know). Unset: as many as this rank has.
  std::optional<int64_t> dispatched_size{};
  // What rank 0 gives to all ranks when a pass begins.
  std::vector<RngType> rng_types{};
  // Of all ranks; needed for `dispatch` and `rng_types`.
  std::shared_ptr<Communicator> communicator{};
};

// The position of a loader: enough to continue with exactly the samples not yet seen, on any number
// of ranks. Equal on all ranks.
struct LoaderState {
  uint64_t seed = 0;
  int64_t epoch = 0;
  // What the pass `epoch` has used up on all ranks together, counting what the loops have got, not
  // what workers have read ahead.
  int64_t position = 0;
  // `position` counts samples, or batches where their sizes vary or a foreign loader makes them.
  bool counts_batches = false;
  // Samples (or batches) of a pass; -1 for a stream that does not know.
  int64_t size = -1;

  bool operator==(const LoaderState&) const = default;
};

}  // namespace accelerate
