// One connection between two launchers.
#pragma once

#include <chrono>
#include <deque>
#include <optional>
#include <string>

#include "base/unique_fd.h"
#include "launch/remote/message.h"

namespace accelerate::launch {

// Sends and receives messages over a connected socket that does not block. The event loop polls
// fd() for POLLIN, and POLLOUT while wants_write().
class LineChannel {
 public:
  using Clock = std::chrono::steady_clock;

  LineChannel() = default;
  // Takes a socket over.
  LineChannel(UniqueFd socket, std::string peer);

  int fd() const { return socket_.get(); }
  const std::string& peer() const { return peer_; }  // its address
  explicit operator bool() const { return static_cast<bool>(socket_); }

  void send(const Message& message);
  // Takes and gives what there is, without blocking.
  void handle(short revents);
  bool wants_write() const { return !outgoing_.empty() && socket_; }
  // The next message that came whole.
  std::optional<Message> next();

  // Why the connection has ended: "its connection ended", "Connection reset by peer", or that what
  // came is no message; "" while it stands. What came before can still be taken.
  const std::string& end_reason() const { return end_reason_; }
  // The process there closed it or is gone; false for a network that broke, and for close().
  bool was_ended_by_peer() const { return ended_by_peer_; }
  Clock::time_point last_heard() const { return last_heard_; }
  void close();
  // Nothing is sent after what send() was given so far. The channel stays open until the other side
  // ends it too: a socket that is closed with words unread takes back what it has not delivered.
  void end_sending();

 private:
  void read_some();
  void write_some();
  void end(const std::string& reason);

  UniqueFd socket_;
  std::string peer_;
  std::string incoming_;
  size_t taken_ = 0;  // bytes of it that next() has given out
  std::string outgoing_;
  std::string end_reason_;
  bool ended_by_peer_ = false;
  bool ends_sending_ = false;
  Clock::time_point last_heard_ = Clock::now();
};

}  // namespace accelerate::launch
