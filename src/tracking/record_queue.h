// The queue between the threads that log and the thread that writes.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "accelerate/tracker.h"

namespace accelerate::tracking {

// Numbers that a device still computes, or copies to the host.
class PendingNumbers {
 public:
  virtual ~PendingNumbers() = default;
  // Whether get() would not wait. Any thread.
  virtual bool ready() const = 0;
  // One number for each value that waits, in the order of the values. Only once ready().
  virtual std::vector<double> get() const = 0;
};

// Something large that is made ready by the writer: an image that is encoded, a histogram that is
// counted.
struct Attachment {
  std::variant<std::vector<TrackedImage>, TrackedTable, TrackedHistogram, TrackedFigure,
               TrackedArtifact>
      content{};
  size_t bytes = 0;  // of the room that the queue gives to such
};

// An attachment that a device still computes.
class PendingAttachment {
 public:
  virtual ~PendingAttachment() = default;
  virtual bool ready() const = 0;
  virtual Attachment get() const = 0;
};

enum class RecordKind : uint8_t { kNothing, kValues, kAttachment, kConfig, kContinue };

// One call. Records stay in the queue and are filled again and again, so that their memory is used
// again too.
struct Record {
  static constexpr int kAllTrackers = -1;

  RecordKind kind = RecordKind::kNothing;
  int tracker = kAllTrackers;
  TrackedStep at{};
  size_t value_count = 0;  // of `values`; what is behind them is spare
  std::vector<NamedValue> values{};
  std::vector<size_t> waiting{};  // which of the values `pending` will give
  std::shared_ptr<const PendingNumbers> pending{};
  std::shared_ptr<const Attachment> attachment{};
  std::shared_ptr<const PendingAttachment> pending_attachment{};
  size_t reserved_bytes = 0;

  void clear() {
    kind = RecordKind::kNothing;
    tracker = kAllTrackers;
    value_count = 0;
    waiting.clear();
    pending.reset();
    attachment.reset();
    pending_attachment.reset();
    reserved_bytes = 0;
  }
  // A value at the end.
  NamedValue& add(std::string_view name) {
    if (value_count == values.size()) values.emplace_back();
    NamedValue& value = values[value_count++];
    value.name.assign(name);
    return value;
  }
  bool is_ready() const {
    return (!pending || pending->ready()) && (!pending_attachment || pending_attachment->ready());
  }
};

// Bounded. Any thread may push; one thread pops. Neither ever waits for the other: a full queue
// takes nothing, and a place whose writer was held up in the middle of it is not passed by.
class RecordQueue {
 public:
  explicit RecordQueue(size_t capacity)
      : places_(std::bit_ceil(std::max<size_t>(capacity, 2))), mask_(places_.size() - 1) {
    for (size_t i = 0; i < places_.size(); ++i) places_[i].turn.store(i, std::memory_order_relaxed);
  }

  size_t capacity() const { return places_.size(); }
  // About how many records wait.
  size_t size() const {
    const size_t begin = begin_.load(std::memory_order_relaxed);
    const size_t end = end_.load(std::memory_order_relaxed);
    return end > begin ? end - begin : 0;
  }
  // How many were ever pushed.
  size_t pushed() const { return end_.load(std::memory_order_acquire); }
  // How many were ever popped.
  size_t popped() const { return begin_.load(std::memory_order_acquire); }

  // Has `fill` fill a cleared record in place. False if the queue is full. A `fill` that throws
  // leaves an empty record.
  template <class Fill>
  bool push(Fill&& fill) {
    size_t ticket = end_.load(std::memory_order_relaxed);
    Place* place = nullptr;
    while (true) {
      place = &places_[ticket & mask_];
      const size_t turn = place->turn.load(std::memory_order_acquire);
      if (turn == ticket) {
        if (end_.compare_exchange_weak(ticket, ticket + 1, std::memory_order_acq_rel)) break;
      } else if (turn < ticket) {
        return false;
      } else {
        ticket = end_.load(std::memory_order_relaxed);
      }
    }
    struct Publish {
      Place* place;
      size_t turn;
      ~Publish() { place->turn.store(turn, std::memory_order_release); }
    } publish{place, ticket + 1};
    try {
      fill(place->record);
    } catch (...) {
      place->record.clear();
      throw;
    }
    return true;
  }

  // The record that is next, null if there is none. The thread that pops.
  Record* front() {
    Place& place = places_[begin_.load(std::memory_order_relaxed) & mask_];
    const size_t turn = place.turn.load(std::memory_order_acquire);
    return turn == begin_.load(std::memory_order_relaxed) + 1 ? &place.record : nullptr;
  }
  // Gives the place of front() back.
  void pop() {
    const size_t ticket = begin_.load(std::memory_order_relaxed);
    Place& place = places_[ticket & mask_];
    place.record.clear();
    place.turn.store(ticket + places_.size(), std::memory_order_release);
    begin_.store(ticket + 1, std::memory_order_release);
  }

 private:
  struct alignas(64) Place {
    // The ticket that may fill it; one more once it is filled.
    std::atomic<size_t> turn{0};
    Record record;
  };

  std::vector<Place> places_;
  const size_t mask_;
  alignas(64) std::atomic<size_t> end_{0};    // the next ticket to push
  alignas(64) std::atomic<size_t> begin_{0};  // the next ticket to pop
};

}  // namespace accelerate::tracking
