// One pass over a dataset, as indices: the compiled half of DataLoader, which the templates in
// data_loader.h drive. Nothing here is called by users.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "accelerate/batch.h"
#include "accelerate/batch_shard.h"
#include "accelerate/loader_options.h"

namespace accelerate::detail {

struct PassOptions {
  int64_t n = 0;
  int64_t epoch = 0;
  LoaderOptions loader{};
  std::optional<LoaderShard> shard{};
};

// Throw UsageError where the values cannot be used.
void check_dataset(const void* dataset);
void check_options(const LoaderOptions& options);
void check_shard(const LoaderOptions& options, const LoaderShard& shard, bool already_sharded);

// A permutation of 0 .. n-1, the same as torch.randperm(n) of a CPU generator with this seed.
at::Tensor shuffled_order(int64_t n, uint64_t seed);

// The position in one pass. Stands on the first batch when made. Keeps the order of a shuffled
// pass (8 bytes a sample) and one batch of indices.
class LoaderPass {
 public:
  explicit LoaderPass(PassOptions options);

  // Batches in a pass with these options.
  static int64_t rounds(const PassOptions& options);

  bool done() const { return info_.index >= shard_.rounds(); }
  void advance();

  // Of the batch that the pass stands on; not while done().
  c10::ArrayRef<size_t> indices() const { return indices_; }
  const BatchInfo& info() const { return info_; }

  // `tensor` on the device of the pass.
  at::Tensor place(const at::Tensor& tensor) const;

 private:
  void select();

  BatchShard shard_;
  std::optional<c10::Device> device_;
  at::Tensor order_;  // undefined: in the order of the dataset
  BatchInfo info_;
  std::vector<size_t> indices_;
};

}  // namespace accelerate::detail
