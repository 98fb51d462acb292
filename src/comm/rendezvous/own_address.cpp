#include "comm/rendezvous/own_address.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "base/unique_fd.h"

namespace accelerate::comm {
namespace {

std::string address_text(const sockaddr* address, socklen_t length) {
  char text[NI_MAXHOST];
  return getnameinfo(address, length, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0 ? text
                                                                                          : "";
}

bool is_loopback_text(const std::string& address) {
  return address == "::1" || address.starts_with("127.") || address.starts_with("::ffff:127.");
}

// The source address of packets to host:port. Connecting a datagram socket sends nothing.
std::string address_towards(const std::string& host, uint16_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return "";
  std::string address;
  for (addrinfo* at = found; at != nullptr && address.empty(); at = at->ai_next) {
    const UniqueFd asked(socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, at->ai_protocol));
    if (!asked) continue;
    sockaddr_storage own{};
    socklen_t length = sizeof own;
    if (connect(asked.get(), at->ai_addr, at->ai_addrlen) == 0 &&
        getsockname(asked.get(), reinterpret_cast<sockaddr*>(&own), &length) == 0) {
      address = address_text(reinterpret_cast<sockaddr*>(&own), length);
    }
  }
  freeaddrinfo(found);
  return address;
}

// The address in `entry` if it is of `family` and others may reach it, else "".
std::string public_address(const ifaddrs& entry, int family) {
  constexpr unsigned kReady = IFF_UP | IFF_RUNNING;
  if (entry.ifa_addr == nullptr || entry.ifa_addr->sa_family != family) return "";
  if ((entry.ifa_flags & kReady) != kReady || (entry.ifa_flags & IFF_LOOPBACK) != 0) return "";
  if (family == AF_INET) return address_text(entry.ifa_addr, sizeof(sockaddr_in));
  const auto* address = reinterpret_cast<const sockaddr_in6*>(entry.ifa_addr);
  if (IN6_IS_ADDR_LINKLOCAL(&address->sin6_addr)) return "";
  return address_text(entry.ifa_addr, sizeof(sockaddr_in6));
}

std::string first_public_address() {
  ifaddrs* entries = nullptr;
  if (getifaddrs(&entries) != 0) return "";
  std::string address;
  for (const int family : {AF_INET, AF_INET6}) {
    for (ifaddrs* at = entries; at != nullptr && address.empty(); at = at->ifa_next) {
      address = public_address(*at, family);
    }
  }
  freeifaddrs(entries);
  return address;
}

}  // namespace

std::string own_address(const RankEnvironment& ranks) {
  std::string address = address_towards(ranks.master_address, ranks.master_port);
  const bool one_machine = ranks.local_world_size == ranks.world_size;
  return one_machine || !is_loopback_text(address) ? address : first_public_address();
}

}  // namespace accelerate::comm
