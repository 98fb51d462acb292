#include "accelerate/stream.h"

#include <string>

#include "accelerate/batch_shard.h"
#include "accelerate/detail/batch_stream_maker.h"
#include "accelerate/detail/stream_maker.h"
#include "accelerate/detail/torch_loader.h"
#include "accelerate/errors.h"

namespace accelerate::detail {

void throw_read_twice() {
  throw DataError({.what = "this stream can be read only once, a second pass was asked for",
                   .hint = "give stream() a function that reopens the source for each pass"});
}

void throw_overtaken_pass() {
  throw UsageError(
      {.what = "two loops over one loader of torch::data: it has a single position, "
               "which the inner loop has moved",
       .hint = "give each loop a loader of its own, or use accelerate::data_loader()"});
}

StreamShard stream_shard(const PassSpec& spec) {
  const LoaderShard& ranks = spec.shard;
  const int64_t batch_size = spec.options.batch_size;
  const BatchShard checked({.batch_size = batch_size,
                            .split_batches = ranks.split_batches,
                            .world_size = ranks.world_size,
                            .rank = ranks.rank});
  const int64_t stride = checked.stride();
  if (ranks.dispatch) {
    return {.slots = stride,
            .stride = stride,
            .multiple = ranks.world_size,
            .drop_last = spec.options.drop_last};
  }
  const int64_t slots = stride / ranks.world_size;
  return {.slots = slots,
          .stride = stride,
          .offset = slots * ranks.rank,
          .even = ranks.even_batches && ranks.world_size > 1,
          .drop_last = spec.options.drop_last};
}

BatchStreamShard batch_stream_shard(const PassSpec& spec) {
  const LoaderShard& ranks = spec.shard;
  return {.batches = ranks.split_batches ? 1 : ranks.world_size,
          .parts = ranks.world_size,
          .drop_last = spec.options.drop_last};
}

void throw_without_rows() {
  throw DataError({.what = "a batch of the loader has no rows",
                   .hint = "its tensors need the batch as their first dimension"});
}

void throw_too_few_rows(int64_t rows, int64_t parts) {
  throw DataError({.what = "a batch of " + std::to_string(rows) + " rows cannot be cut into " +
                           std::to_string(parts) + " parts",
                   .hint = "make batches larger, or leave drop_last off"});
}

}  // namespace accelerate::detail
