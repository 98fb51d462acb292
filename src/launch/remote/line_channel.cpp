#include "launch/remote/line_channel.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace accelerate::launch {

LineChannel::LineChannel(UniqueFd socket, std::string peer)
    : socket_(std::move(socket)), peer_(std::move(peer)) {
  fcntl(fd(), F_SETFL, fcntl(fd(), F_GETFL) | O_NONBLOCK);
  const int on = 1;
  setsockopt(fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

void LineChannel::send(const Message& message) {
  if (!socket_ || ends_sending_) return;
  outgoing_ += message.encode() + "\n";
  write_some();
}

void LineChannel::handle(short revents) {
  if ((revents & (POLLIN | POLLHUP | POLLERR)) != 0) read_some();
  if ((revents & POLLOUT) != 0) write_some();
}

void LineChannel::read_some() {
  char buffer[16 * 1024];
  while (socket_) {
    const ssize_t count = recv(fd(), buffer, sizeof buffer, 0);
    const int error = count < 0 ? errno : 0;
    if (count > 0) {
      incoming_.append(buffer, static_cast<size_t>(count));
      last_heard_ = Clock::now();
      const bool endless = incoming_.size() > Message::kMaxBytes &&
                           incoming_.find('\n', taken_) == std::string::npos;
      if (endless) end("it does not speak the launcher's protocol");
      if (endless || incoming_.size() > 4 * Message::kMaxBytes) return;
      continue;
    }
    if (error == EINTR) continue;
    if (error == EAGAIN || error == EWOULDBLOCK) return;
    ended_by_peer_ = end_reason_.empty() && (count == 0 || error == ECONNRESET);
    end(count == 0 ? "its connection ended" : std::strerror(error));
  }
}

void LineChannel::write_some() {
  while (wants_write()) {
    const ssize_t count = ::send(fd(), outgoing_.data(), outgoing_.size(), MSG_NOSIGNAL);
    const int error = count < 0 ? errno : 0;
    if (count > 0) {
      outgoing_.erase(0, static_cast<size_t>(count));
      continue;
    }
    if (error == EINTR) continue;
    // A broken connection is seen by the next read, which first takes what came before its end.
    return;
  }
  if (ends_sending_ && socket_) shutdown(fd(), SHUT_WR);
}

void LineChannel::end_sending() {
  ends_sending_ = true;
  write_some();
}

std::optional<Message> LineChannel::next() {
  const size_t newline = incoming_.find('\n', taken_);
  if (newline == std::string::npos) {
    incoming_.erase(0, taken_);
    taken_ = 0;
    return std::nullopt;
  }
  auto message = Message::decode(std::string_view(incoming_).substr(taken_, newline - taken_));
  taken_ = newline + 1;
  if (!message) {
    incoming_.clear();
    taken_ = 0;
    end("it does not speak the launcher's protocol");
  }
  return message;
}

void LineChannel::end(const std::string& reason) {
  if (end_reason_.empty()) end_reason_ = reason;
  socket_.reset();
  outgoing_.clear();
}

void LineChannel::close() { end("closed"); }

}  // namespace accelerate::launch
