#include "launch/plan/port_reservation.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "accelerate/errors.h"

namespace accelerate::launch {
namespace {

void allow_reuse(int socket) {
  const int on = 1;
  setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
}

int bound_port(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  if (address.ss_family == AF_INET6)
    return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

// A socket bound to `port` (0: any) on all addresses, or nothing with errno set.
UniqueFd bind_everywhere(int port, bool reuse) {
  UniqueFd socket6(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (socket6) {
    const int off = 0;
    setsockopt(socket6.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (reuse) allow_reuse(socket6.get());
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_addr = in6addr_any;
    address.sin6_port = htons(static_cast<uint16_t>(port));
    if (bind(socket6.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0)
      return socket6;
    if (errno != EADDRNOTAVAIL && errno != EAFNOSUPPORT) return UniqueFd();
  }
  // A machine without IPv6.
  UniqueFd socket4(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket4) return UniqueFd();
  if (reuse) allow_reuse(socket4.get());
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  address.sin_port = htons(static_cast<uint16_t>(port));
  if (bind(socket4.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0)
    return socket4;
  return UniqueFd();
}

}  // namespace

PortReservation PortReservation::any() {
  // Bound without SO_REUSEADDR, so that the kernel picks a port that no one has; the option comes
  // afterwards, and lets rank 0 in.
  UniqueFd socket = bind_everywhere(0, false);
  if (!socket) {
    throw CommError({.what = "no free TCP port: " + std::string(std::strerror(errno)),
                     .hint = "close programs that hold ports, or widen the range of "
                             "net.ipv4.ip_local_port_range"});
  }
  allow_reuse(socket.get());
  const int port = bound_port(socket.get());
  return PortReservation(std::move(socket), port);
}

PortReservation PortReservation::of(int port) {
  UniqueFd socket = bind_everywhere(port, true);
  if (!socket) {
    const bool in_use = errno == EADDRINUSE;
    throw ConfigError(
        {.what = "port " + std::to_string(port) +
                 (in_use ? " is in use by another process"
                         : " cannot be used: " + std::string(std::strerror(errno))),
         .where = "--main_process_port",
         .hint = "name another port, or leave the flag out and a free one is picked"});
  }
  return PortReservation(std::move(socket), port);
}

}  // namespace accelerate::launch
