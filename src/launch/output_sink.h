// One of the launcher's own output streams, written without ever blocking the event loop.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace accelerate::launch {

// A queue before a descriptor that it does not own and whose flags it does not change: other
// processes may share it. The event loop polls fd() for POLLOUT while wants_write().
class OutputSink {
 public:
  // Workers are not read while more than this waits for the reader of our output.
  static constexpr size_t kHighWater = size_t{1} << 20;

  explicit OutputSink(int fd);

  void enqueue(std::string_view bytes);

  // Writes one piece if that does not block: our other stream may be the same pipe and have filled
  // it since poll said POLLOUT. Where the kernel refuses to say, it may block. The piece ends with
  // a whole line where it can. A failed write drops the queue for good; on standard error
  // that is told, unless it is the one that fails.
  void write_some();

  int fd() const { return fd_; }
  bool wants_write() const { return written_ < queue_.size(); }
  bool is_full() const { return queue_.size() - written_ > kHighWater; }
  // The reader of our output has gone away.
  bool is_broken() const { return state_ == State::kBroken; }

 private:
  enum class State { kOpen, kDiscarding, kBroken };

  int fd_;
  size_t max_piece_;
  std::string queue_;
  size_t written_ = 0;  // bytes at the front of queue_ that are out already
  State state_ = State::kOpen;
};

}  // namespace accelerate::launch
