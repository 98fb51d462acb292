// Makes the batches of a pass over a stream of samples. Internal: users do not call it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "accelerate/detail/feed.h"
#include "accelerate/detail/fetch.h"
#include "accelerate/detail/kept_value.h"
#include "accelerate/detail/pass_plan.h"
#include "accelerate/detail/read_ahead.h"
#include "accelerate/export.h"
#include "accelerate/stream.h"

namespace accelerate::detail {

// How the samples of a stream, whose end is unknown, are dealt: by the rules of BatchShard, round
// by round.
struct StreamShard {
  int64_t slots = 0;     // samples of this rank in a full round
  int64_t stride = 0;    // samples of all ranks in a round
  int64_t offset = 0;    // where this rank's part of a round starts
  int64_t multiple = 1;  // with dispatch, the last round is filled up to a multiple of this
  bool even = false;     // the last round is filled up on every rank
  bool drop_last = false;
};
// Throws UsageError as BatchShard does, and for a sampler: a stream has an order of its own.
ACCELERATE_EXPORT StreamShard stream_shard(const PassSpec& spec);

// Every rank reads the whole stream and keeps its part. One round is read ahead: only then is it
// known whether a batch is the last one, and whether a round is complete.
template <class T, class Collate>
class StreamMaker {
  static_assert(std::is_copy_constructible_v<T>,
                "samples of a stream are copied to even out the last batch");

 public:
  using Value =
      decltype(to_batch(std::declval<const Collate&>()(std::declval<std::vector<T>&&>())));
  struct Draft {
    std::vector<T> samples{};
    BatchInfo info{};
    int64_t position = 0;
  };

  StreamMaker(const std::shared_ptr<Stream<T>>& source, std::shared_ptr<const Collate> collate,
              const PassSpec& spec)
      : collate_(std::move(collate)),
        next_(source->open(spec.epoch)),
        shard_(stream_shard(spec)),
        epoch_(spec.epoch),
        start_(spec.start) {}

  bool draw(Draft& draft) {
    return ahead_.next(draft, [this] { return read_round(); });
  }

  Produced<Value> build(Draft&& draft, const StopFlag&) const {
    return {to_batch((*collate_)(std::move(draft.samples))), draft.info, draft.position};
  }

 private:
  std::optional<T> next_sample() {
    if (ended_) return std::nullopt;
    std::optional<T> sample = [&] {
      try {
        return next_();
      } catch (...) {
        rethrow_for_sample(static_cast<size_t>(read_));
      }
    }();
    if (!sample) {
      ended_ = true;
      return sample;
    }
    // The last round is filled up with samples of the first.
    if ((shard_.even || shard_.multiple > 1) && read_ < shard_.stride) {
      beginning_.push_back(kept(*sample));
    }
    ++read_;
    return sample;
  }

  std::optional<Draft> read_round() {
    // Past what was used up before.
    while (read_ < start_ && next_sample()) {
    }
    const int64_t first = read_;
    Draft draft;
    while (read_ - first < shard_.stride) {
      const int64_t slot = read_ - first - shard_.offset;
      std::optional<T> sample = next_sample();
      if (!sample) break;
      if (slot >= 0 && slot < shard_.slots) draft.samples.push_back(std::move(*sample));
    }
    const int64_t count = read_ - first;
    if (count == 0 || (count < shard_.stride && shard_.drop_last)) return std::nullopt;
    const auto valid = static_cast<int64_t>(draft.samples.size());
    fill_up(draft.samples, first);
    if (draft.samples.empty()) return std::nullopt;
    draft.info = {.epoch = epoch_,
                  .index = first / shard_.stride,
                  .size = static_cast<int64_t>(draft.samples.size()),
                  .valid = valid};
    draft.position = read_;
    return draft;
  }

  void fill_up(std::vector<T>& samples, int64_t first) const {
    const auto size = static_cast<int64_t>(samples.size());
    int64_t missing = shard_.even ? shard_.slots - size : 0;
    int64_t from = first + shard_.offset + size;
    if (size % shard_.multiple != 0) {
      missing = shard_.multiple - size % shard_.multiple;
      from = 0;
    }
    for (int64_t i = 0; i < missing; ++i) {
      const auto place = static_cast<size_t>((from + i) % read_);
      samples.push_back(beginning_[place % beginning_.size()]);
    }
  }

  std::shared_ptr<const Collate> collate_;
  typename Stream<T>::Next next_;
  StreamShard shard_;
  int64_t epoch_;
  int64_t start_;
  bool ended_ = false;
  int64_t read_ = 0;  // samples taken from the stream
  std::vector<T> beginning_;
  ReadAhead<Draft> ahead_;
};

}  // namespace accelerate::detail
