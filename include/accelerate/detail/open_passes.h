// The loops that are running over loaders at the moment. Internal: users do not call it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "accelerate/batch.h"
#include "accelerate/export.h"

namespace accelerate::detail {

// Loops may be nested: the innermost one is the one that was begun last and is still open. Any
// thread.
class ACCELERATE_EXPORT OpenPasses {
 public:
  // The batch that the innermost loop works on; nothing outside of loops.
  std::optional<BatchInfo> current() const;

  // Called by the thread of a loop: before each batch is loaded, and when the loop has come to its
  // end; what they throw ends the pass and leaves the loop. What before_batch() returns is kept
  // until the batch is there, or does not come. May be empty. Set before the first loop.
  struct Watch {
    std::function<std::shared_ptr<void>()> before_batch{};
    std::function<void()> at_end{};
  };
  void set_watch(Watch watch) { watch_ = std::move(watch); }

  // Called by before_pass(), which every loop calls before it begins; never at the same time as
  // another such call. May be empty.
  void set_before_pass(std::function<void()> call);
  void before_pass() const;

 private:
  friend class OpenPass;
  struct Entry {
    int64_t number = 0;
    std::optional<BatchInfo> batch{};
  };

  int64_t begin();
  void deliver(int64_t number, const BatchInfo& batch);
  void end(int64_t number);

  mutable std::mutex mutex_;
  int64_t begun_ = 0;
  std::vector<Entry> open_;
  Watch watch_;
  mutable std::mutex before_pass_mutex_;
  std::function<void()> before_pass_;
};

// One loop. Ends with its object: when the loop reached its end or was left.
class OpenPass {
 public:
  explicit OpenPass(std::shared_ptr<OpenPasses> passes)
      : passes_(std::move(passes)), number_(passes_->begin()) {}
  OpenPass(OpenPass&&) noexcept = default;
  OpenPass& operator=(OpenPass&& other) noexcept {
    std::swap(passes_, other.passes_);
    std::swap(number_, other.number_);
    return *this;
  }
  ~OpenPass() {
    if (passes_) passes_->end(number_);
  }

  void deliver(const BatchInfo& batch) { passes_->deliver(number_, batch); }
  std::shared_ptr<void> before_batch() {
    return passes_->watch_.before_batch ? passes_->watch_.before_batch() : nullptr;
  }
  void at_end() {
    if (passes_->watch_.at_end) passes_->watch_.at_end();
  }

 private:
  std::shared_ptr<OpenPasses> passes_;
  int64_t number_;
};

}  // namespace accelerate::detail
