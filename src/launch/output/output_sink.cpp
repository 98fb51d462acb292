#include "launch/output/output_sink.h"

#include <limits.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace accelerate::launch {
namespace {

// Says so where errors go, unless that would block.
void tell_loss(int reason) {
  const std::string text = std::string("accelerate launch: the output cannot be written: ") +
                           std::strerror(reason) +
                           "; the job goes on, but the rest of its output is lost\n";
  pollfd descriptor{STDERR_FILENO, POLLOUT, 0};
  if (poll(&descriptor, 1, 0) <= 0) return;
  // Where errors cannot be written either, nobody can be told.
  [[maybe_unused]] const ssize_t count = ::write(STDERR_FILENO, text.data(), text.size());
}

constexpr std::string_view kWipeBelow = "\r\x1b[J";
constexpr size_t kMaxLine = 4096;

}  // namespace

bool is_same_terminal(int one, int other) {
  struct stat first {};
  struct stat second {};
  return isatty(one) == 1 && isatty(other) == 1 && fstat(one, &first) == 0 &&
         fstat(other, &second) == 0 && first.st_rdev == second.st_rdev;
}

OutputSink::OutputSink(int fd) : fd_(fd), max_piece_(PIPE_BUF), is_terminal_(isatty(fd) == 1) {
  struct stat status {};
  if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode)) max_piece_ = kHighWater;
}

void OutputSink::enqueue(std::string_view bytes) {
  if (shared_ != nullptr) return shared_->enqueue(bytes);
  if (state_ != State::kOpen || bytes.empty()) return;
  if (live_line_.empty() || !bytes.ends_with('\n')) {
    queue_ += bytes;
    return;
  }
  queue_ += kWipeBelow;
  queue_ += bytes;
  queue_ += live_line_;
}

void OutputSink::enqueue_live(std::string_view bytes) {
  if (shared_ != nullptr) return shared_->enqueue_live(bytes);
  while (!bytes.empty()) {
    const size_t text = text_beside_bar(bytes);
    const size_t size = text > 0 ? text : end_of_redrawn_bar(bytes);
    text > 0 ? enqueue_above_bar(bytes.substr(0, size)) : draw(bytes.substr(0, size));
    bytes.remove_prefix(size);
  }
}

void OutputSink::draw(std::string_view bytes) {
  if (state_ == State::kOpen) queue_ += bytes;
  if (!is_terminal_) return;
  const size_t begin = bytes.find_last_of("\r\n");
  if (begin == std::string_view::npos) {
    live_line_ += bytes;
  } else {
    live_line_ = bytes[begin] == '\n' ? bytes.substr(begin + 1) : bytes.substr(begin);
    if (live_line_ == "\r") live_line_.clear();
  }
  if (live_line_.size() > kMaxLine) live_line_.clear();
  if (live_line_.empty() && state_ == State::kOpen) queue_ += std::exchange(half_line_, {});
}

bool OutputSink::has_bar() const {
  return live_line_.starts_with('\r') && live_line_ != kWipeBelow;
}

// What is read at once may hold text and drawings, one after the other.
size_t OutputSink::text_beside_bar(std::string_view bytes) const {
  if (!has_bar()) return 0;
  // A terminal makes \r\n of the end of a line.
  size_t drawing = bytes.find_first_of("\r\x1b");
  while (drawing != std::string_view::npos && bytes.substr(drawing).starts_with("\r\n")) {
    drawing = bytes.find_first_of("\r\x1b", drawing + 1);
  }
  if (drawing == std::string_view::npos) return bytes.size();
  return bytes.substr(0, drawing).rfind('\n') + 1;  // nothing: 0
}

// A line that was written above the bar wipes it off and draws it again as it was; what comes after
// that is text.
size_t OutputSink::end_of_redrawn_bar(std::string_view bytes) const {
  const size_t wiped = bytes.find(kWipeBelow);
  if (!has_bar() || wiped == std::string_view::npos) return bytes.size();
  const std::string bar = "\n" + live_line_.substr(0, live_line_.find_last_not_of(' ') + 1);
  const size_t drawn = bytes.find(bar, wiped);
  return drawn == std::string_view::npos ? bytes.size() : drawn + bar.size();
}

void OutputSink::enqueue_above_bar(std::string_view text) {
  half_line_ += text;
  if (half_line_.size() > kMaxLine && half_line_.find('\n') == std::string::npos) {
    half_line_ += '\n';
  }
  const size_t end = half_line_.rfind('\n');
  if (end == std::string::npos) return;
  enqueue(half_line_.substr(0, end + 1));
  half_line_.erase(0, end + 1);
}

void OutputSink::end_live_line() {
  if (shared_ != nullptr) return shared_->end_live_line();
  if (!live_line_.empty() && state_ == State::kOpen) queue_ += "\n";
  live_line_.clear();
  if (!half_line_.empty()) enqueue(std::exchange(half_line_, {}) + '\n');
}

void OutputSink::write_some() {
  pollfd descriptor{fd_, POLLOUT, 0};
  if (poll(&descriptor, 1, 0) == 0) return;
  std::string_view piece = std::string_view(queue_).substr(written_);
  if (piece.size() > max_piece_) {
    piece = piece.substr(0, max_piece_);
    const size_t newline = piece.rfind('\n');
    if (newline != std::string_view::npos) piece = piece.substr(0, newline + 1);
  }
  const ssize_t count = ::write(fd_, piece.data(), piece.size());
  if (count < 0) {
    if (errno == EAGAIN || errno == EINTR) return;
    // A full disk must not stop a training run; a reader that left should (as SIGPIPE would).
    state_ = errno == EPIPE ? State::kBroken : State::kDiscarding;
    if (state_ == State::kDiscarding && fd_ != STDERR_FILENO) tell_loss(errno);
    queue_.clear();
    written_ = 0;
    return;
  }
  written_ += static_cast<size_t>(count);
  if (written_ == queue_.size()) {
    queue_.clear();
    written_ = 0;
  } else if (written_ > kHighWater) {
    queue_.erase(0, written_);
    written_ = 0;
  }
}

}  // namespace accelerate::launch
