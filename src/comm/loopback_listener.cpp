#include "comm/loopback_listener.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace accelerate::comm {
namespace {

bool is_loopback_address(const in_addr& address) {
  return ntohl(address.s_addr) >> 24 == IN_LOOPBACKNET;
}

}  // namespace

std::optional<int> bind_loopback(const std::string& host, uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  if (inet_pton(AF_INET, host.c_str(), &address.sin_addr) != 1) return std::nullopt;
  if (!is_loopback_address(address.sin_addr)) return std::nullopt;
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return std::nullopt;
  const int on =
      1;  // a launcher holds the port for us, and connections of an earlier job may linger
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return fd;
  close(fd);
  return std::nullopt;
}

}  // namespace accelerate::comm
