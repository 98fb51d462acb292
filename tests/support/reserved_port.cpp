#include "support/reserved_port.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace accelerate::test {

ReservedPort::ReservedPort() {
  socket_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  socklen_t length = sizeof(address);
  const int yes = 1;
  // SO_REUSEADDR comes after bind: before it the kernel could hand out a port that another
  // process reserves in the same way. The socket never listens, so a rank's bind is no conflict.
  if (socket_ < 0 || bind(socket_, reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) != 0 ||
      getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    throw std::system_error(errno, std::generic_category(), "cannot reserve a TCP port");
  }
  number_ = ntohs(address.sin_port);
}

ReservedPort::~ReservedPort() {
  if (socket_ >= 0) close(socket_);
}

ReservedPort::ReservedPort(ReservedPort&& other) noexcept
    : socket_(std::exchange(other.socket_, -1)), number_(std::exchange(other.number_, 0)) {}

ReservedPort& ReservedPort::operator=(ReservedPort&& other) noexcept {
  std::swap(socket_, other.socket_);
  std::swap(number_, other.number_);
  return *this;
}

}  // namespace accelerate::test
