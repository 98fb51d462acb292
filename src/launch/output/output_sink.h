// One of the launcher's own output streams, written without ever blocking the event loop.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace accelerate::launch {

// Whether both are one terminal.
bool is_same_terminal(int one, int other);

// A queue before a descriptor that it does not own and whose flags it does not change: other
// processes may share it. The event loop polls fd() for POLLOUT while wants_write().
class OutputSink {
 public:
  // Workers are not read while more than this waits for the reader of our output.
  static constexpr size_t kHighWater = size_t{1} << 20;

  explicit OutputSink(int fd);

  // Whole lines. Where a live line stands in the terminal it is wiped, and stands below them again.
  void enqueue(std::string_view bytes);

  // What the one worker writes that draws bars and asks questions, as it comes: its last line may
  // have no end, and is then the live line. Text that draws nothing goes above a bar that stands
  // there, each line when it has ended.
  void enqueue_live(std::string_view bytes);
  // That worker has ended: what comes after its live line begins on a line of its own.
  void end_live_line();

  // From now on everything goes to `other`, which is the same terminal: only one writes there.
  // `other` outlives it.
  void share(OutputSink& other) { shared_ = &other; }

  // Writes one piece if that does not block: our other stream may be the same pipe and have filled
  // it since poll said POLLOUT. Where the kernel refuses to say, it may block. The piece ends with
  // a whole line where it can. A failed write drops the queue for good; on standard error
  // that is told, unless it is the one that fails.
  void write_some();

  int fd() const { return fd_; }
  bool wants_write() const { return written_ < queue_.size(); }
  bool is_full() const {
    return shared_ != nullptr ? shared_->is_full() : queue_.size() - written_ > kHighWater;
  }
  // The reader of our output has gone away.
  bool is_broken() const {
    return shared_ != nullptr ? shared_->is_broken() : state_ == State::kBroken;
  }

 private:
  enum class State { kOpen, kDiscarding, kBroken };

  void draw(std::string_view bytes);
  bool has_bar() const;
  // How much at the front of `bytes` is text beside a bar that stands there.
  size_t text_beside_bar(std::string_view bytes) const;
  // How much at the front of `bytes` to pass on as it is.
  size_t end_of_redrawn_bar(std::string_view bytes) const;
  void enqueue_above_bar(std::string_view text);

  int fd_;
  size_t max_piece_;
  std::string queue_;
  size_t written_ = 0;  // bytes at the front of queue_ that are out already
  State state_ = State::kOpen;
  bool is_terminal_;
  std::string live_line_;  // what stands in the last line of the terminal, since its last \r
  std::string half_line_;  // of text above a bar
  OutputSink* shared_ = nullptr;
};

}  // namespace accelerate::launch
