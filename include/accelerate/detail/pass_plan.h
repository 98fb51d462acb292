// One pass over a dataset, as indices: which samples each batch holds. Internal: users do not
// call it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "accelerate/batch.h"
#include "accelerate/export.h"
#include "accelerate/loader_options.h"

namespace accelerate::detail {

// Everything that decides a pass.
struct PassSpec {
  int64_t samples = 0;  // of the dataset
  int64_t epoch = 0;
  int64_t start = 0;  // what was used up before; see LoaderState::position
  uint64_t seed = 0;
  LoaderOptions options{};
  LoaderShard shard{};
};

struct PlannedBatch {
  std::vector<size_t> indices{};
  BatchInfo info{};
  int64_t position = 0;  // what the pass has used up after this batch
};

// The batches of one pass. Any thread, any order.
class ACCELERATE_EXPORT PassPlan {
 public:
  virtual ~PassPlan() = default;
  virtual int64_t rounds() const = 0;
  // Writes batch `k` of the pass, 0 <= k < rounds(), over `batch`. Throws DataError for an index
  // that the dataset does not have.
  virtual void read(int64_t k, PlannedBatch& batch) const = 0;
};

// The plan of this rank; with `dispatch` that of rank 0 for all: batches that are cut into
// world_size equal parts. Throws UsageError for values that cannot be used, DataError if a batch
// sampler does not do what it promised.
ACCELERATE_EXPORT std::shared_ptr<const PassPlan> make_plan(const PassSpec& spec);

// make_plan(spec)->rounds(), without making the order of the samples.
ACCELERATE_EXPORT int64_t planned_rounds(const PassSpec& spec);

// What a pass has in all: samples, or batches where their sizes vary.
ACCELERATE_EXPORT int64_t planned_size(const PassSpec& spec);
// How far `batches` batches of this rank reach into a pass, in the same unit.
ACCELERATE_EXPORT int64_t planned_position(const PassSpec& spec, int64_t batches);

// Whether positions count batches.
ACCELERATE_EXPORT bool counts_batches(const LoaderOptions& options);

}  // namespace accelerate::detail
