// Options of an Accelerator. Every field has a default that suits most users.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "accelerate/accumulation.h"
#include "accelerate/autocast.h"
#include "accelerate/checkpoint.h"
#include "accelerate/communicator.h"
#include "accelerate/flat.h"
#include "accelerate/grad_scaler.h"
#include "accelerate/loader_options.h"
#include "accelerate/mixed_precision.h"
#include "accelerate/preemption.h"
#include "accelerate/prepared_scheduler.h"
#include "accelerate/profiler.h"
#include "accelerate/strategy_options.h"
#include "accelerate/tracker.h"

namespace accelerate {

// How prepared loaders share data between the ranks.
struct ShardingOptions {
  // batch_size counts for all ranks together; it must be a multiple of their number.
  bool split_batches = false;
  // Repeat the first samples so that all ranks run the same number of full batches.
  bool even_batches = true;
  // Only rank 0 reads, and sends every rank its part: for data that only one process can read. The
  // default, also for streams, is that every rank reads its own share.
  bool dispatch_batches = false;
  // Read a few samples of a dataset when it is prepared and refuse data that differ between the
  // ranks. Data that change with every reading (augmentation) are detected and left alone, and so
  // are streams. libtorch's generators stay as they are.
  bool compare_samples = true;
  // Generators that rank 0 gives to all ranks when a pass begins; begin() is then collective.
  std::vector<RngType> rng_types{};
  // Seed of the order of loaders that have none of their own; unset: the seed of torch's CPU
  // generator on rank 0.
  std::optional<uint64_t> data_seed{};
  // Copy the next batch to a GPU while the current one computes.
  bool non_blocking = true;
};

struct AcceleratorOptions {
  // Stay on the CPU even if there is a GPU. Also set by ACCELERATE_USE_CPU=true.
  bool cpu = false;
  // "cpu", "cuda", "cuda:1", "xla"; empty: ACCELERATE_TORCH_DEVICE, else what is there. An XLA
  // device (a TPU, or XLA's own CPU) is only chosen by name, by this or by ACCELERATE_USE_XLA.
  std::string device{};
  // Move models, optimizer state and batches to the device.
  bool device_placement = true;
  // "no", "fp16", "bf16" or "fp8"; unset: ACCELERATE_MIXED_PRECISION, else no.
  std::optional<MixedPrecision> mixed_precision{};
  PrecisionOptions precision{};
  // How losses are scaled under fp16.
  GradScalerOptions grad_scaler{};
  GradientAccumulationOptions gradient_accumulation{};
  // Where checkpoints go, and how many stay.
  ProjectOptions project{};
  // Where log() writes: names such as "tensorboard", or trackers of your own. See init_trackers().
  std::vector<TrackerChoice> log_with{};
  // What profile() without arguments records.
  ProfileOptions profile{};
  // Signals after which the loop should save and stop.
  PreemptionOptions preemption{};
  // Give every rank its own random numbers from where its loop begins: the first pass over a
  // prepared loader, forward pass, accumulate() or save_state(). Up to there torch::manual_seed()
  // makes all ranks draw alike, as weights and random targets need; afterwards rank 0 goes on with
  // that stream and the others with streams made of its seed and their rank. Off: generators are
  // left alone.
  bool separate_random_streams = true;
  // How fast schedulers advance.
  PreparedSchedulerOptions scheduler{};
  ShardingOptions data_loader{};
  // How the ranks train together.
  StrategyOptions strategy{};
  // Of the strategy that is chosen for several processes. UsageError beside a `strategy` that is
  // named: its options stand there.
  DdpOptions ddp{};
  // Keep the parameters of prepared models in one vector of half precision, with float32 masters
  // that optimizers update. UsageError beside a strategy of your own.
  std::optional<FlatOptions> flat{};
  ProcessGroupOptions process_group{};
  // Give the same bits in every run on the same number of ranks, threads and kind of hardware:
  // algorithms, the order of sums and that of exchanges are fixed for as long as this accelerator
  // lives. An operation for which libtorch has no such algorithm is an error that names it. All
  // accelerators that live at the same time have the same setting; UsageError otherwise.
  bool deterministic = false;
};

}  // namespace accelerate
