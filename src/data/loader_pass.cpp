#include "accelerate/detail/loader_pass.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <c10/util/Type.h>

#include <algorithm>
#include <limits>
#include <string>

#include "accelerate/batch_shard.h"
#include "accelerate/communicator.h"
#include "accelerate/detail/batch_stream_maker.h"
#include "accelerate/detail/stream_maker.h"
#include "accelerate/errors.h"
#include "device/device_backend.h"

namespace accelerate::detail {
namespace {

[[noreturn]] void refuse_loader(std::string what, std::string hint = {}) {
  throw UsageError({.what = std::move(what), .hint = std::move(hint)});
}

void check_order_options(const LoaderOptions& options, SourceKind kind) {
  const bool orders = options.shuffle || options.sampler || options.batch_sampler;
  if (kind != SourceKind::kDataset && orders) {
    refuse_loader(
        "a stream has its own order: shuffle, sampler and batch_sampler cannot be combined with it",
        "shuffle inside the stream, or give the loader a dataset with size() and get()");
  }
  if (options.batch_sampler && options.batch_size != LoaderOptions{}.batch_size) {
    refuse_loader("batch_size and batch_sampler are both set",
                  "leave batch_size out: it is set by the batch sampler");
  }
  if (options.batch_sampler && (options.shuffle || options.sampler)) {
    refuse_loader(
        "a batch_sampler sets the order itself: shuffle and sampler cannot be combined with it",
        "shuffle inside the batch sampler");
  }
  if (options.sampler && options.shuffle) {
    refuse_loader("shuffle and sampler are both set",
                  "leave shuffle off: the sampler gives the order");
  }
}

uint64_t seed_of(const LoaderSettings& settings, const LoaderControl::Start& start) {
  if (start.seed) return *start.seed;
  if (settings.shard) return settings.shard->seed;
  if (settings.options.seed) return *settings.options.seed;
  return at::detail::getDefaultCPUGenerator().current_seed();
}

// What one round uses up of a stream, in the unit of its positions.
int64_t stream_stride(SourceKind kind, const PassSpec& spec) {
  return kind == SourceKind::kBatchStream ? batch_stream_shard(spec).batches
                                          : stream_shard(spec).stride;
}

int64_t position_after(SourceKind kind, const PassSpec& spec, int64_t batches) {
  if (kind == SourceKind::kDataset) return planned_position(spec, batches);
  int64_t position = 0;
  const bool overflow = __builtin_mul_overflow(batches, stream_stride(kind, spec), &position) ||
                        __builtin_add_overflow(position, spec.start, &position);
  return overflow ? std::numeric_limits<int64_t>::max() : position;
}

bool state_counts_batches(const LoaderSettings& settings) {
  return settings.kind == SourceKind::kBatchStream || counts_batches(settings.options);
}

// Lets every rank begin the pass that rank 0 begins.
void synchronise_order(const LoaderSettings& settings, LoaderControl& control) {
  const LoaderControl::Start own = control.start();
  at::Tensor start = at::tensor(
      {static_cast<int64_t>(seed_of(settings, own)), own.epoch, own.position}, at::kLong);
  settings.shard->communicator->broadcast(start);
  const int64_t* values = start.data_ptr<int64_t>();
  control.load(
      {.seed = static_cast<uint64_t>(values[0]), .epoch = values[1], .position = values[2]});
}

std::string unit_of(bool counts_batches) { return counts_batches ? "batches" : "samples"; }

}  // namespace

void check_skipped(int64_t batches) {
  if (batches < 0) refuse_loader("cannot skip " + std::to_string(batches) + " batches");
}

void check_dataset(const void* dataset) {
  if (dataset == nullptr) refuse_loader("a loader needs a dataset, got a null pointer");
}

void check_options(const LoaderOptions& options, SourceKind kind) {
  check_order_options(options, kind);
  if (options.num_workers < 0) {
    refuse_loader("num_workers must be 0 or more, got " + std::to_string(options.num_workers));
  }
  if (options.prefetch < 1) {
    refuse_loader("prefetch must be at least 1, got " + std::to_string(options.prefetch));
  }
  const auto size = options.batch_sampler ? options.batch_sampler->batch_size() : std::nullopt;
  (void)BatchShard({.batch_size = size.value_or(options.batch_size)});
}

void check_shard(const LoaderOptions& options, const LoaderShard& shard, SourceKind kind,
                 bool already_sharded) {
  if (already_sharded) {
    refuse_loader("this loader is already sharded", "shard the loader that data_loader() returned");
  }
  if ((shard.dispatch || !shard.rng_types.empty()) && shard.world_size > 1 && !shard.communicator) {
    refuse_loader("dispatch and rng_types need a communicator");
  }
  if (kind == SourceKind::kBatchStream) {
    if (!shard.dispatch && shard.world_size > 1) {
      refuse_loader("batches of a foreign loader can only be dispatched");
    }
    return;
  }
  if (counts_batches(options)) {
    if (shard.split_batches && shard.world_size > 1 && !shard.dispatch) {
      refuse_loader(
          "split_batches needs batches of one size, those of this batch sampler vary",
          "leave split_batches off, or let batch_size() of the batch sampler return their size");
    }
    return;
  }
  const auto size = options.batch_sampler ? options.batch_sampler->batch_size() : std::nullopt;
  (void)BatchShard({.batch_size = size.value_or(options.batch_size),
                    .split_batches = shard.split_batches,
                    .world_size = shard.world_size,
                    .rank = shard.rank});
}

void refuse_to_dispatch(const LoaderShard& shard, const std::type_info& batch) {
  if (!shard.dispatch || shard.world_size == 1) return;
  refuse_loader(
      "batches of type " + c10::demangle(batch.name()) + " cannot be dispatched",
      "collate to tensors, numbers and strings, or to a struct with ACCELERATE_FIELDS; see "
      "nested.h");
}

PassSpec next_pass(const LoaderSettings& settings, const LoaderControl& control,
                   std::optional<int64_t> size) {
  if (settings.prepared_size && size && *settings.prepared_size != *size) {
    throw DataError({.what = "the dataset had " + std::to_string(*settings.prepared_size) +
                             " samples when its loader was prepared, now it has " +
                             std::to_string(*size),
                     .hint = "prepare a loader of the dataset as it is now, on all ranks"});
  }
  const LoaderControl::Start start = control.start();
  PassSpec spec{.samples = size.value_or(0),
                .epoch = start.epoch,
                .start = start.position,
                .seed = seed_of(settings, start),
                .options = settings.options,
                .shard = settings.shard.value_or(LoaderShard{})};
  if (start.even_batches) spec.shard.even_batches = *start.even_batches;
  spec.shard.dispatch = spec.shard.dispatch && spec.shard.world_size > 1;
  if (settings.skipped.batches > 0 && settings.skipped.epoch == spec.epoch) {
    PassSpec whole = spec;
    whole.start = 0;
    spec.start =
        std::max(spec.start, position_after(settings.kind, whole, settings.skipped.batches));
  }
  return spec;
}

int64_t rounds_of(const LoaderSettings& settings, const PassSpec& spec,
                  std::optional<int64_t> size) {
  if (settings.kind == SourceKind::kDataset) return planned_rounds(spec);
  if (!size) {
    throw DataError({.what = "the stream does not know its length",
                     .hint = "give stream() the number of samples of a pass"});
  }
  PassSpec counted = spec;
  counted.samples = *size;
  if (settings.kind == SourceKind::kBatchStream) {
    // Each batch counts as a sample, all of a round as a batch that is dispatched.
    counted.options.batch_size = 1;
    if (spec.shard.split_batches) counted.shard = LoaderShard{};
    counted.shard.dispatch = !spec.shard.split_batches;
  }
  return planned_rounds(counted);
}

LoaderState state_of(const LoaderSettings& settings, const LoaderControl& control,
                     std::optional<int64_t> size) {
  const LoaderControl::Start start = control.start();
  LoaderState state{
      .seed = seed_of(settings, start), .epoch = start.epoch, .position = start.position};
  if (const auto place = control.place()) {
    state.seed = place->seed;
    state.epoch = place->epoch;
    state.position = place->position;
  }
  state.counts_batches = state_counts_batches(settings);
  state.size = size.value_or(-1);
  return state;
}

void check_state(const LoaderSettings& settings, std::optional<int64_t> size,
                 const LoaderState& state) {
  const auto reject = [](std::string what, std::string hint) {
    throw DataError({.what = std::move(what), .where = "load_state_dict", .hint = std::move(hint)});
  };
  if (state.epoch < 0 || state.position < 0) {
    reject("a loader cannot stand at position " + std::to_string(state.position) + " of epoch " +
               std::to_string(state.epoch),
           "the state is damaged");
  }
  if (state.counts_batches != state_counts_batches(settings)) {
    reject("the state counts " + unit_of(state.counts_batches) + ", this loader counts " +
               unit_of(!state.counts_batches),
           "load it into a loader with the same kind of sampler");
  }
  if (size && state.size >= 0 && *size != state.size) {
    reject("the state is of a dataset with " + std::to_string(state.size) +
               " samples, this one has " + std::to_string(*size),
           "load it into a loader of the same data, or restart the epoch");
  }
  if (settings.kind == SourceKind::kDataset && size && !state.counts_batches) {
    const int64_t all = planned_size(
        {.samples = *size, .epoch = state.epoch, .seed = state.seed, .options = settings.options});
    if (state.position > all) {
      reject("the state stands at " + std::to_string(state.position) + ", a pass has " +
                 std::to_string(all) + " samples",
             "the state is damaged, or of a loader with another sampler");
    }
  }
}

void load_state(const LoaderSettings& settings, LoaderControl& control, std::optional<int64_t> size,
                const LoaderState& state) {
  check_state(settings, size, state);
  control.load(state);
}

void synchronise_generators(const LoaderSettings& settings, LoaderControl& control) {
  control.passes()->before_pass();
  if (!settings.shard || settings.shard->world_size == 1) return;
  const LoaderShard& shard = *settings.shard;
  for (const RngType type : shard.rng_types) {
    if (type == RngType::kGenerator) {
      synchronise_order(settings, control);
    } else if (type == RngType::kTorch) {
      synchronize_rng_states(*shard.communicator, {type});
    } else if (!shard.device.is_cpu()) {
      synchronize_rng_states(*shard.communicator, {type}, std::nullopt, shard.device);
    }
  }
}

bool pins_memory(const LoaderOptions& options, const LoaderShard& shard) {
  const bool useful =
      shard.place_on_device && device::device_backend(shard.device.type()).pins_memory();
  return options.pin_memory ? *options.pin_memory && device::memory_can_be_pinned() : useful;
}

at::Tensor pinned(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.device().is_cpu() || tensor.is_pinned()) return tensor;
  return tensor.pin_memory();
}

}  // namespace accelerate::detail
