// Makes the batches of a pass over a stream of batches, which another library's loader gives.
// Internal: users do not call it.
#pragma once

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
#include "accelerate/nested.h"
#include "accelerate/stream.h"

namespace accelerate::detail {

// A batch of another loader, converted: a list of samples is collated, anything else is a batch.
template <class T, class Collate>
auto adopt_batch(T&& batch, const Collate& collate) {
  if constexpr (is_vector<T>) {
    using Entry = typename T::value_type;
    if constexpr (std::is_class_v<Entry> && !std::is_same_v<Entry, at::Tensor> &&
                  !std::is_same_v<Entry, std::string>) {
      return to_batch(collate(std::forward<T>(batch)));
    } else {
      return to_batch(std::forward<T>(batch));
    }
  } else {
    return to_batch(std::forward<T>(batch));
  }
}

// How many batches make a round, and into how many parts it must be cut.
struct BatchStreamShard {
  int64_t batches = 1;
  int64_t parts = 1;
  bool drop_last = false;
};
ACCELERATE_EXPORT BatchStreamShard batch_stream_shard(const PassSpec& spec);
// Throws DataError: a batch without rows, or one with fewer rows than there are ranks.
[[noreturn]] ACCELERATE_EXPORT void throw_without_rows();
[[noreturn]] ACCELERATE_EXPORT void throw_too_few_rows(int64_t rows, int64_t parts);

// As many batches as there are ranks are joined to one, which dispatch cuts into parts. One round
// is read ahead to know which one is the last.
template <class T, class Collate>
class BatchStreamMaker {
 public:
  using Value = decltype(adopt_batch(std::declval<T>(), std::declval<const Collate&>()));
  struct Draft {
    std::vector<T> batches{};
    BatchInfo info{};
    int64_t position = 0;
  };

  BatchStreamMaker(const std::shared_ptr<BatchStream<T>>& source,
                   std::shared_ptr<const Collate> collate, const PassSpec& spec)
      : collate_(std::move(collate)),
        next_(source->open(spec.epoch)),
        shard_(batch_stream_shard(spec)),
        epoch_(spec.epoch),
        start_(spec.start) {}

  bool draw(Draft& draft) {
    return ahead_.next(draft, [this] { return read_round(); });
  }

  Produced<Value> build(Draft&& draft, const StopFlag&) const {
    Produced<Value> produced{joined(std::move(draft.batches)), draft.info, draft.position};
    const std::optional<int64_t> rows = find_batch_size(produced.value);
    if (!rows || *rows == 0) throw_without_rows();
    produced.info.size = produced.info.valid = *rows;
    if (*rows % shard_.parts != 0) make_divisible(produced);
    return produced;
  }

 private:
  std::optional<T> next_batch() {
    if (ended_) return std::nullopt;
    std::optional<T> batch = [&] {
      try {
        return next_();
      } catch (...) {
        rethrow_for_batch(read_);
      }
    }();
    if (!batch) {
      ended_ = true;
      return batch;
    }
    // The last round is filled up with rows of the first.
    if (shard_.parts > 1 && read_ < shard_.batches) beginning_->push_back(kept(*batch));
    ++read_;
    return batch;
  }

  std::optional<Draft> read_round() {
    // Past what was used up before.
    while (read_ < start_ && next_batch()) {
    }
    Draft draft;
    const int64_t index = read_ / shard_.batches;
    while (static_cast<int64_t>(draft.batches.size()) < shard_.batches) {
      std::optional<T> batch = next_batch();
      if (!batch) break;
      draft.batches.push_back(std::move(*batch));
    }
    const auto count = static_cast<int64_t>(draft.batches.size());
    if (count == 0 || (count < shard_.batches && shard_.drop_last)) return std::nullopt;
    draft.info = {.epoch = epoch_, .index = index};
    draft.position = read_;
    return draft;
  }

  Value joined(std::vector<T>&& batches) const {
    if (batches.size() == 1) return adopt_batch(std::move(batches.front()), *collate_);
    std::vector<Value> parts;
    parts.reserve(batches.size());
    for (T& batch : batches) parts.push_back(adopt_batch(std::move(batch), *collate_));
    return concatenate(parts);
  }

  // Cuts off the rest, or fills up with the first rows of the pass.
  void make_divisible(Produced<Value>& produced) const {
    const int64_t rows = produced.info.size;
    if (shard_.drop_last) {
      const int64_t kept = rows / shard_.parts * shard_.parts;
      if (kept == 0) throw_too_few_rows(rows, shard_.parts);
      produced.value = slice_rows(produced.value, 0, kept);
      produced.info.size = produced.info.valid = kept;
      return;
    }
    const Value first = joined(std::vector<T>(*beginning_));
    if (find_batch_size(first).value_or(0) == 0) throw_without_rows();
    std::vector<Value> parts{std::move(produced.value)};
    int64_t missing = shard_.parts - rows % shard_.parts;
    produced.info.size += missing;
    while (missing > 0) {
      parts.push_back(slice_rows(first, 0, missing));
      missing -= *find_batch_size(parts.back());
    }
    produced.value = concatenate(parts);
  }

  std::shared_ptr<const Collate> collate_;
  typename Stream<T>::Next next_;
  BatchStreamShard shard_;
  int64_t epoch_;
  int64_t start_;
  bool ended_ = false;
  int64_t read_ = 0;  // batches taken from the stream
  // The first round; complete before any round is built that needs it.
  std::shared_ptr<std::vector<T>> beginning_ = std::make_shared<std::vector<T>>();
  ReadAhead<Draft> ahead_;
};

}  // namespace accelerate::detail
