#include "comm/rendezvous/loopback_listener.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <utility>

namespace accelerate::comm {
namespace {

bool is_loopback_address(const in_addr& address) {
  return ntohl(address.s_addr) >> 24 == IN_LOOPBACKNET;
}

}  // namespace

UniqueFd bind_loopback(const std::string& host, uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  if (inet_pton(AF_INET, host.c_str(), &address.sin_addr) != 1) return {};
  if (!is_loopback_address(address.sin_addr)) return {};
  UniqueFd bound(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!bound) return {};
  // A launcher holds the port for us, and connections of an earlier job may linger.
  const int on = 1;
  setsockopt(bound.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const bool is_bound =
      bind(bound.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  return is_bound ? std::move(bound) : UniqueFd();
}

}  // namespace accelerate::comm
