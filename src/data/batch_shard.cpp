#include "accelerate/batch_shard.h"

#include <algorithm>
#include <limits>
#include <string>

#include "accelerate/errors.h"

namespace accelerate {
namespace {

// Far from the end of the range: adding a position and a stride never overflows.
constexpr int64_t kLargest = std::numeric_limits<int64_t>::max() / 4;

int64_t ceil_divide(int64_t numerator, int64_t denominator) {
  return numerator / denominator + (numerator % denominator != 0 ? 1 : 0);
}

void check_shard_options(const BatchShardOptions& options) {
  if (options.batch_size <= 0) {
    throw UsageError(
        {.what = "batch_size must be at least 1, got " + std::to_string(options.batch_size),
         .hint = "give the loader a positive batch_size"});
  }
  if (options.n < 0 || options.n > kLargest) {
    throw UsageError({.what = "a dataset cannot have " + std::to_string(options.n) + " samples"});
  }
  if (options.start < 0 || options.start > options.n) {
    throw UsageError({.what = "a pass of " + std::to_string(options.n) +
                              " samples cannot continue at sample " +
                              std::to_string(options.start)});
  }
  if (options.world_size < 1 || options.rank < 0 || options.rank >= options.world_size) {
    throw UsageError({.what = "rank " + std::to_string(options.rank) + " does not exist among " +
                              std::to_string(options.world_size) + " processes"});
  }
  if (options.batch_size > kLargest / options.world_size) {
    throw UsageError({.what = "batch_size " + std::to_string(options.batch_size) +
                              " is too large for " + std::to_string(options.world_size) +
                              " processes"});
  }
  if (options.split_batches && options.batch_size % options.world_size != 0) {
    throw UsageError({.what = "split_batches needs a batch_size that the number of processes "
                              "divides: " +
                              std::to_string(options.batch_size) + " among " +
                              std::to_string(options.world_size),
                      .hint = "make batch_size a multiple of the number of processes, or leave "
                              "split_batches off"});
  }
}

}  // namespace

BatchShard::BatchShard(const BatchShardOptions& options) {
  check_shard_options(options);
  n_ = options.n;
  start_ = options.start;
  const int64_t left = n_ - start_;
  slots_ = options.split_batches ? options.batch_size / options.world_size : options.batch_size;
  stride_ = slots_ * options.world_size;
  offset_ = slots_ * options.rank;
  ragged_ = !options.drop_last && !options.even_batches;
  if (options.drop_last) {
    rounds_ = left / stride_;
  } else if (options.even_batches) {
    rounds_ = ceil_divide(left, stride_);
  } else {
    rounds_ = left > offset_ ? ceil_divide(left - offset_, stride_) : 0;
  }
}

BatchShard::Round BatchShard::round(int64_t k) const {
  const int64_t first = start_ + k * stride_ + offset_;
  const int64_t valid = std::clamp<int64_t>(n_ - first, 0, slots_);
  return {.first = first, .size = ragged_ ? valid : slots_, .valid = valid};
}

int64_t BatchShard::used_after(int64_t k) const { return std::min(n_, start_ + (k + 1) * stride_); }

int64_t BatchShard::wrapped(int64_t position) const {
  if (n_ == 0 || position < 0) {
    throw UsageError({.what = "a pass of " + std::to_string(n_) + " samples has no position " +
                              std::to_string(position)});
  }
  return position % n_;
}

}  // namespace accelerate
