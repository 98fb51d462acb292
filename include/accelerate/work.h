// A collective that has begun and may still be under way.
#pragma once

#include <memory>

#include "accelerate/export.h"

namespace accelerate {

// What Communicator's *_async calls return. Move it, wait for it once, on the thread that makes the
// collectives. Several may be under way; they may be waited for in any order.
//
// Until wait() has returned, the tensors of the call are neither read nor written by the program;
// the handle keeps them alive. One that is destroyed without wait(): the exchange goes on, other
// ranks are not disturbed, and what the tensors of this rank hold is undefined.
class [[nodiscard]] ACCELERATE_EXPORT Work {
 public:
  Work();  // one that is done
  ~Work();
  Work(Work&& other) noexcept;
  Work& operator=(Work&& other) noexcept;
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  // Blocks until the result is there, for CPU tensors; for CUDA tensors it only orders the current
  // stream after the exchange. Throws what the blocking call throws, as often as it is called;
  // returns at once where it has returned before.
  void wait();

  // Whether wait() would return, or throw, without blocking for other ranks.
  bool done() const;

  class ACCELERATE_HIDDEN State;
  explicit Work(std::unique_ptr<State> state);

 private:
  std::unique_ptr<State> state_;  // null: done
};

}  // namespace accelerate
