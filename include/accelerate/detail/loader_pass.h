// The compiled half of DataLoader: what does not depend on the type of the data. Internal: users
// do not call it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <typeinfo>
#include <utility>

#include "accelerate/detail/feed.h"
#include "accelerate/detail/loader_control.h"
#include "accelerate/detail/pass_plan.h"
#include "accelerate/detail/pinned_collation.h"
#include "accelerate/export.h"
#include "accelerate/loader_options.h"
#include "accelerate/nested.h"

namespace accelerate::detail {

// What the samples come from.
enum class SourceKind { kDataset, kStream, kBatchStream };

// Throw UsageError where the values cannot be used.
ACCELERATE_EXPORT void check_skipped(int64_t batches);
ACCELERATE_EXPORT void check_dataset(const void* dataset);
ACCELERATE_EXPORT void check_options(const LoaderOptions& options, SourceKind kind);
ACCELERATE_EXPORT void check_shard(const LoaderOptions& options, const LoaderShard& shard,
                                   SourceKind kind, bool already_sharded);
// For batches of a type that is not a nested value: throws if `shard` dispatches.
ACCELERATE_EXPORT void refuse_to_dispatch(const LoaderShard& shard, const std::type_info& batch);

// Batches to pass over, in the pass `epoch` only.
struct SkippedBatches {
  int64_t epoch = 0;
  int64_t batches = 0;
};

// A loader without its data.
struct LoaderSettings {
  SourceKind kind = SourceKind::kDataset;
  LoaderOptions options{};
  std::optional<LoaderShard> shard{};
  std::optional<int64_t> prepared_size{};  // of the dataset, when the loader was sharded
  SkippedBatches skipped{};
};

// The next pass of a loader over `size` samples (batches of a batch stream; nothing: a stream that
// does not know). Throws DataError if a dataset has another size than when it was prepared.
ACCELERATE_EXPORT PassSpec next_pass(const LoaderSettings& settings, const LoaderControl& control,
                                     std::optional<int64_t> size);

// Batches of this rank in a pass over `size`. Throws DataError if it is unknown.
ACCELERATE_EXPORT int64_t rounds_of(const LoaderSettings& settings, const PassSpec& spec,
                                    std::optional<int64_t> size);

ACCELERATE_EXPORT LoaderState state_of(const LoaderSettings& settings, const LoaderControl& control,
                                       std::optional<int64_t> size);
// Throws DataError if `state` is not one of this data.
ACCELERATE_EXPORT void check_state(const LoaderSettings& settings, std::optional<int64_t> size,
                                   const LoaderState& state);
// The same, and applies it.
ACCELERATE_EXPORT void load_state(const LoaderSettings& settings, LoaderControl& control,
                                  std::optional<int64_t> size, const LoaderState& state);

// Gives what rng_types names the state of rank 0. Collective where there is something.
ACCELERATE_EXPORT void synchronise_generators(const LoaderSettings& settings,
                                              LoaderControl& control);

// Whether batches go to pinned memory.
ACCELERATE_EXPORT bool pins_memory(const LoaderOptions& options, const LoaderShard& shard);
// `tensor` in pinned memory, if it is on the CPU.
ACCELERATE_EXPORT at::Tensor pinned(const at::Tensor& tensor);

// Builds in pinned memory what `Maker` builds.
template <class Maker>
class PinningMaker {
 public:
  using Value = typename Maker::Value;
  using Draft = typename Maker::Draft;

  PinningMaker(Maker maker, bool on) : maker_(std::move(maker)), on_(on) {}

  bool draw(Draft& draft) { return maker_.draw(draft); }

  Produced<Value> build(Draft&& draft, const StopFlag& stop) const {
    if (!on_) return maker_.build(std::move(draft), stop);
    const PinnedCollation pinned_memory;
    Produced<Value> produced = maker_.build(std::move(draft), stop);
    if constexpr (Nested<Value>) {
      for_each_tensor(produced.value, [](at::Tensor& tensor) { tensor = pinned(tensor); });
    }
    return produced;
  }

 private:
  Maker maker_;
  bool on_;
};

}  // namespace accelerate::detail
