// What an Accelerator can be told. Every field has a default that is right for most users.
#pragma once

#include "accelerate/communicator.h"
#include "accelerate/strategy.h"

namespace accelerate {

// How prepared loaders share their data over the ranks.
struct ShardingOptions {
  // batch_size counts for all ranks together; it must be a multiple of their number.
  bool split_batches = false;
  // Repeat the first samples so that all ranks run the same number of full batches.
  bool even_batches = true;
};

struct AcceleratorOptions {
  // Stay on the CPU even if there is a GPU. Also set by ACCELERATE_USE_CPU=true.
  bool cpu = false;
  // Move models, optimizer state and batches to the device.
  bool device_placement = true;
  ShardingOptions data_loader{};
  DdpOptions ddp{};
  ProcessGroupOptions process_group{};
};

}  // namespace accelerate
