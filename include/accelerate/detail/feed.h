// The stages that a batch passes through on its way to the loop. Internal: users do not call it.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "accelerate/batch.h"

namespace accelerate::detail {

// A batch on its way.
template <class Value>
struct Produced {
  Value value{};
  BatchInfo info{};
  int64_t position = 0;  // what the pass has used up after this batch
};

// Gives the batches of one pass in order. One thread; the destructor ends what runs behind it.
template <class Value>
class Feed {
 public:
  virtual ~Feed() = default;
  // Writes the next batch over `batch`; false at the end of the pass. After it threw, the pass is
  // over.
  virtual bool next(Produced<Value>& batch) = 0;
};

// Set when a pass is given up: long work looks at it and returns early.
using StopFlag = std::atomic<bool>;

// A maker makes the batches of one pass in two steps, so that several threads can share the work:
//   bool draw(Draft&)                            in order, one thread at a time; false at the end
//   Produced<Value> build(Draft&&, const StopFlag&)   any thread; the result is thrown away once
//                                                the flag is set
// Here the thread of the loop does both.
template <class Maker>
class DirectFeed final : public Feed<typename Maker::Value> {
 public:
  explicit DirectFeed(Maker maker) : maker_(std::move(maker)) {}

  bool next(Produced<typename Maker::Value>& batch) override {
    typename Maker::Draft draft{};
    if (!maker_.draw(draft)) return false;
    batch = maker_.build(std::move(draft), never_);
    return true;
  }

 private:
  Maker maker_;
  StopFlag never_{false};
};

}  // namespace accelerate::detail
