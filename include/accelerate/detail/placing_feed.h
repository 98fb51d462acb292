// Brings batches to the device of the loop. Internal: users do not call it.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <exception>
#include <memory>
#include <optional>
#include <utility>

#include "accelerate/detail/feed.h"
#include "accelerate/export.h"
#include "accelerate/nested.h"

namespace accelerate::detail {

// Whether copies to `device` can go on while it computes.
ACCELERATE_EXPORT bool has_copy_stream(c10::Device device);

// `tensor` on `device`; waits until it is there.
ACCELERATE_EXPORT at::Tensor place(const at::Tensor& tensor, c10::Device device);

// Copies on a stream of its own. One thread.
class ACCELERATE_EXPORT DeviceCopies {
 public:
  explicit DeviceCopies(c10::Device device);
  ~DeviceCopies();
  DeviceCopies(DeviceCopies&&) noexcept;
  DeviceCopies& operator=(DeviceCopies&&) noexcept;

  // Queues a copy of `tensor`, which reaches the device without waiting if it is in pinned memory.
  at::Tensor copy(const at::Tensor& tensor);

  // A point in the queue of copies.
  class ACCELERATE_HIDDEN Mark;
  std::shared_ptr<Mark> mark();
  // Makes the current stream wait for all copies before `mark`.
  void await(const Mark& mark);
  // Tells the allocator that the current stream uses `tensor`, which copy() returned.
  void hand_over(const at::Tensor& tensor);

 private:
  struct ACCELERATE_HIDDEN Impl;
  std::unique_ptr<Impl> impl_;
};

// Copies each batch when it is asked for.
template <class Value>
class PlacingFeed final : public Feed<Value> {
 public:
  PlacingFeed(std::unique_ptr<Feed<Value>> feed, c10::Device device)
      : feed_(std::move(feed)), device_(device) {}

  bool next(Produced<Value>& batch) override {
    if (!feed_->next(batch)) return false;
    for_each_tensor(batch.value, [&](at::Tensor& tensor) { tensor = place(tensor, device_); });
    return true;
  }

 private:
  std::unique_ptr<Feed<Value>> feed_;
  c10::Device device_;
};

// Is one batch ahead: it is on its way to the device while the loop works on the one before.
template <class Value>
class AheadPlacingFeed final : public Feed<Value> {
 public:
  AheadPlacingFeed(std::unique_ptr<Feed<Value>> feed, c10::Device device)
      : feed_(std::move(feed)), copies_(device) {}

  bool next(Produced<Value>& batch) override {
    if (!started_) fetch();
    started_ = true;
    if (error_) std::rethrow_exception(error_);
    if (!ahead_) return false;
    batch = std::move(*ahead_);
    const std::shared_ptr<DeviceCopies::Mark> arrived = std::move(arrived_);
    fetch();
    copies_.await(*arrived);
    for_each_tensor(batch.value, [&](const at::Tensor& tensor) { copies_.hand_over(tensor); });
    return true;
  }

 private:
  // An error is kept for the call that would have returned its batch.
  void fetch() {
    ahead_.reset();
    try {
      Produced<Value> batch;
      if (!feed_->next(batch)) return;
      for_each_tensor(batch.value, [&](at::Tensor& tensor) { tensor = copies_.copy(tensor); });
      arrived_ = copies_.mark();
      ahead_ = std::move(batch);
    } catch (...) {
      error_ = std::current_exception();
    }
  }

  std::unique_ptr<Feed<Value>> feed_;
  DeviceCopies copies_;
  bool started_ = false;
  std::optional<Produced<Value>> ahead_;
  std::shared_ptr<DeviceCopies::Mark> arrived_;
  std::exception_ptr error_;
};

}  // namespace accelerate::detail
