// What a loader is told: by its maker (LoaderOptions) and by the accelerator (LoaderShard).
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <optional>

namespace accelerate {

struct LoaderOptions {
  int64_t batch_size = 1;          // samples of a batch; for each rank unless split_batches is on
  bool shuffle = false;            // a new order each epoch
  bool drop_last = false;          // leave out what does not fill a batch on every rank
  std::optional<uint64_t> seed{};  // of the order; unset: the seed of torch's CPU generator
};

// How Accelerator::prepare cuts a loader.
struct LoaderShard {
  int rank = 0;
  int world_size = 1;
  bool split_batches = false;  // batch_size counts for all ranks together
  bool even_batches = true;    // full batches and as many of them on every rank
  c10::Device device{c10::kCPU};
  bool place_on_device = true;
  uint64_t seed = 0;  // of the order, agreed by all ranks
};

}  // namespace accelerate
