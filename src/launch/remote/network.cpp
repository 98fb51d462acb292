#include "launch/remote/network.h"

#include <ifaddrs.h>
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include "accelerate/errors.h"

namespace accelerate::launch {
namespace {

std::string numeric_text(const sockaddr* address, socklen_t size) {
  char text[NI_MAXHOST];
  if (getnameinfo(address, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0) return "?";
  const std::string plain = text;
  constexpr const char* kMapped = "::ffff:";
  return plain.starts_with(kMapped) ? plain.substr(std::strlen(kMapped)) : plain;
}

UniqueFd bound_listener(int family, const sockaddr* address, socklen_t size) {
  UniqueFd socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return UniqueFd();
  const int on = 1;
  const int off = 0;
  setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (family == AF_INET6) setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  if (bind(socket.get(), address, size) != 0 || listen(socket.get(), SOMAXCONN) != 0) {
    const int error = errno;
    socket.reset();
    errno = error;
  }
  return socket;
}

// Empty with errno set if that cannot be.
UniqueFd any_address_listener(int port) {
  sockaddr_in6 any6{};
  any6.sin6_family = AF_INET6;
  any6.sin6_addr = in6addr_any;
  any6.sin6_port = htons(static_cast<uint16_t>(port));
  UniqueFd socket = bound_listener(AF_INET6, reinterpret_cast<sockaddr*>(&any6), sizeof any6);
  if (socket || (errno != EADDRNOTAVAIL && errno != EAFNOSUPPORT)) return socket;
  sockaddr_in any4{};  // a machine without IPv6
  any4.sin_family = AF_INET;
  any4.sin_addr.s_addr = htonl(INADDR_ANY);
  any4.sin_port = htons(static_cast<uint16_t>(port));
  return bound_listener(AF_INET, reinterpret_cast<sockaddr*>(&any4), sizeof any4);
}

std::vector<std::string> own_addresses() {
  ifaddrs* entries = nullptr;
  std::vector<std::string> addresses;
  if (getifaddrs(&entries) != 0) return addresses;
  for (const ifaddrs* at = entries; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr) continue;
    const int family = at->ifa_addr->sa_family;
    if (family == AF_INET) addresses.push_back(numeric_text(at->ifa_addr, sizeof(sockaddr_in)));
    if (family == AF_INET6) addresses.push_back(numeric_text(at->ifa_addr, sizeof(sockaddr_in6)));
  }
  freeifaddrs(entries);
  return addresses;
}

bool has_one_of(const Addresses& addresses, const std::vector<std::string>& texts) {
  for (const addrinfo* at = addresses.get(); at != nullptr; at = at->ai_next) {
    const std::string text = numeric_text(at->ai_addr, at->ai_addrlen);
    if (std::find(texts.begin(), texts.end(), text) != texts.end()) return true;
  }
  return false;
}

}  // namespace

UniqueFd listen_everywhere(int port, std::chrono::milliseconds patience) {
  constexpr std::chrono::milliseconds kBetweenAttempts{20};
  const auto end = std::chrono::steady_clock::now() + patience;
  UniqueFd socket = any_address_listener(port);
  while (!socket && errno == EADDRINUSE && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(kBetweenAttempts);
    socket = any_address_listener(port);
  }
  if (socket) return socket;
  const bool in_use = errno == EADDRINUSE;
  throw ConfigError({.what = "port " + std::to_string(port) +
                             (in_use ? " is in use by another process"
                                     : " cannot be used: " + std::string(std::strerror(errno))),
                     .where = "--main_process_port",
                     .hint = "name another port, the same on all machines"});
}

ResolvedHost resolve(const std::string& host, int port, Resolving how) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  if (how == Resolving::kFiguresOnly) hints.ai_flags = AI_NUMERICHOST;
  addrinfo* found = nullptr;
  const int result = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (result != 0) return {.error = gai_strerror(result)};
  return {.addresses = Addresses(found)};
}

std::vector<Connecting> begin_connecting(const ResolvedHost& host) {
  std::vector<Connecting> attempts;
  for (const addrinfo* at = host.addresses.get(); at != nullptr; at = at->ai_next) {
    UniqueFd socket(::socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket) continue;
    if (connect(socket.get(), at->ai_addr, at->ai_addrlen) != 0 && errno != EINPROGRESS) {
      attempts.push_back({.error = std::strerror(errno)});
    } else {
      attempts.push_back({.socket = std::move(socket)});
    }
  }
  if (attempts.empty()) {
    attempts.push_back({.error = host.error.empty() ? std::strerror(errno) : host.error});
  }
  return attempts;
}

std::string connection_error(int socket) {
  int error = 0;
  socklen_t size = sizeof error;
  if (getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
  return error == 0 ? "" : std::strerror(error);
}

std::string address_text(const sockaddr_storage& address) {
  const socklen_t size = address.ss_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  return numeric_text(reinterpret_cast<const sockaddr*>(&address), size);
}

bool is_own_address(const std::string& host) {
  return has_one_of(resolve(host, 0, Resolving::kNames).addresses, own_addresses());
}

void require_own_address(const std::string& host) {
  const auto [addresses, error] = resolve(host, 0, Resolving::kNames);
  const std::vector<std::string> own = own_addresses();
  if (has_one_of(addresses, own)) return;
  std::string list;
  for (const std::string& address : own) {
    const bool is_local =
        address == "::1" || address.starts_with("127.") || address.starts_with("fe80:");
    if (!is_local) list += (list.empty() ? "" : ", ") + address;
  }
  throw ConfigError({.what = addresses ? host + " is not an address of this machine, which has " +
                                             (list.empty() ? "only loopback addresses" : list)
                                       : "cannot resolve " + host + ": " + error,
                     .where = "--main_process_ip on the machine with --machine_rank 0",
                     .hint = "name an address of it, or leave --same_network out if the address "
                             "is translated on the way"});
}

}  // namespace accelerate::launch
