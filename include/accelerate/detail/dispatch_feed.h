// Rank 0 reads, every rank gets its part. Internal: users do not call it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "accelerate/detail/dispatch_channel.h"
#include "accelerate/detail/feed.h"
#include "accelerate/detail/packed_value.h"
#include "accelerate/export.h"
#include "accelerate/nested.h"

namespace accelerate {

// Rows first .. last - 1 of a batch that rank 0 read, for `rank` of `world_size`.
struct DispatchSlice {
  int64_t first = 0;
  int64_t last = 0;
  int rank = 0;
  int world_size = 1;
};

namespace detail {

template <class Value>
using SliceFunction = std::function<Value(const Value&, const DispatchSlice&)>;

// Throws DataError: `path` has `rows` rows in a batch of `samples`.
[[noreturn]] ACCELERATE_EXPORT void refuse_rows(const NestedPath& path, int64_t rows,
                                                int64_t samples);

struct RowCheck {
  int64_t samples;
  void tensor(const NestedPath& path, const at::Tensor& tensor) const {
    if (!tensor.defined() || tensor.dim() == 0) return;
    if (tensor.size(0) != samples) refuse_rows(path, tensor.size(0), samples);
  }
  template <class T>
  void rows(const NestedPath& path, const std::vector<T>& list) const {
    const auto size = static_cast<int64_t>(list.size());
    if (size != samples) refuse_rows(path, size, samples);
  }
  template <class T>
  void constant(const NestedPath&, const T&) const {}
};

// Every tensor and list of a batch that is cut has as many rows as the batch has samples.
template <class Value>
void check_rows(const Value& batch, int64_t samples) {
  for_each_leaf(batch, RowCheck{samples});
}

// A batch cut into the parts of the ranks: that of rank 0 as it is, the others ready to be sent.
template <class Value>
struct DispatchParts {
  Value own{};
  std::vector<PackedValue> packed{};
};

// Cuts and packs what `Maker` makes; workers do it where there are some.
template <class Maker>
class DispatchMaker {
 public:
  using Whole = typename Maker::Value;
  using Value = DispatchParts<Whole>;
  using Draft = typename Maker::Draft;

  // Without `slice` every tensor and list is cut along its rows.
  DispatchMaker(Maker maker, int world_size, SliceFunction<Whole> slice)
      : maker_(std::move(maker)), world_size_(world_size), slice_(std::move(slice)) {}

  bool draw(Draft& draft) { return maker_.draw(draft); }

  Produced<Value> build(Draft&& draft, const StopFlag& stop) const {
    Produced<Whole> whole = maker_.build(std::move(draft), stop);
    Produced<Value> cut{.info = whole.info, .position = whole.position};
    if (stop.load(std::memory_order_relaxed)) return cut;
    if (!slice_) check_rows(whole.value, whole.info.size);
    cut.value.packed.resize(static_cast<size_t>(world_size_));
    const int64_t rows = whole.info.size / world_size_;
    for (int rank = 0; rank < world_size_; ++rank) {
      const DispatchSlice slice{
          .first = rank * rows, .last = (rank + 1) * rows, .rank = rank, .world_size = world_size_};
      Whole part =
          slice_ ? slice_(whole.value, slice) : slice_rows(whole.value, slice.first, slice.last);
      if (rank == 0) {
        cut.value.own = std::move(part);
      } else {
        cut.value.packed[static_cast<size_t>(rank)] = pack(part);
      }
    }
    return cut;
  }

 private:
  Maker maker_;
  int world_size_;
  SliceFunction<Whole> slice_;
};

// Rank 0. next() is collective; an exception of the dataset is told to the other ranks before it is
// thrown here.
template <class Value>
class DispatchingFeed final : public Feed<Value> {
 public:
  DispatchingFeed(std::unique_ptr<Feed<DispatchParts<Value>>> feed, DispatchChannel channel,
                  int world_size)
      : feed_(std::move(feed)), channel_(std::move(channel)), world_size_(world_size) {}

  bool next(Produced<Value>& batch) override {
    if (over_) return false;
    Produced<DispatchParts<Value>> parts;
    over_ = true;  // unless this one is sent
    try {
      if (!feed_->next(parts)) {
        channel_.send_end();
        return false;
      }
    } catch (const std::exception& error) {
      channel_.send_failure(error.what());
      throw;
    } catch (...) {
      channel_.send_failure("an exception that is not a std::exception");
      throw;
    }
    channel_.send({.info = parts.info, .position = parts.position}, parts.value.packed);
    over_ = false;
    batch = {std::move(parts.value.own), part_of(parts.info, 0, world_size_), parts.position};
    return true;
  }

 private:
  std::unique_ptr<Feed<DispatchParts<Value>>> feed_;
  DispatchChannel channel_;
  int world_size_;
  bool over_ = false;
};

// The other ranks. next() is collective.
template <class Value>
class ReceivingFeed final : public Feed<Value> {
 public:
  ReceivingFeed(DispatchChannel channel, int rank, int world_size)
      : channel_(std::move(channel)), rank_(rank), world_size_(world_size) {}

  bool next(Produced<Value>& batch) override {
    if (over_) return false;
    over_ = true;
    std::optional<DispatchChannel::Received> received = channel_.receive();
    if (!received) return false;
    over_ = false;
    batch = {unpack<Value>(received->part.header, received->part.bytes),
             part_of(received->round.info, rank_, world_size_), received->round.position};
    return true;
  }

 private:
  DispatchChannel channel_;
  int rank_;
  int world_size_;
  bool over_ = false;
};

}  // namespace detail
}  // namespace accelerate
