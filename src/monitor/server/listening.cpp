#include "monitor/server/listening.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>

#include "accelerate/errors.h"
#include "base/environment.h"
#include "base/host_name.h"
#include "base/random_id.h"

namespace accelerate::monitor {
namespace {

constexpr size_t kShortestToken = 8;

struct FreeAddresses {
  void operator()(addrinfo* addresses) const { freeaddrinfo(addresses); }
};

bool is_loopback(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(address);
    return ntohl(v4->sin_addr.s_addr) >> 24 == 127;
  }
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(address);
  return address->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
}

bool is_any_address(const std::string& host) { return host == "0.0.0.0" || host == "::"; }

int port_of(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port
                   : reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
}

// An empty socket and errno if it cannot be.
UniqueFd listener(const addrinfo& at, int port) {
  UniqueFd socket(::socket(at.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket) return UniqueFd();
  const int on = 1;
  setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_storage address{};
  std::memcpy(&address, at.ai_addr, at.ai_addrlen);
  const auto network_port = htons(static_cast<uint16_t>(port));
  if (at.ai_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(&address)->sin6_port = network_port;
  } else {
    reinterpret_cast<sockaddr_in*>(&address)->sin_port = network_port;
  }
  const bool is_open =
      bind(socket.get(), reinterpret_cast<sockaddr*>(&address), at.ai_addrlen) == 0 &&
      listen(socket.get(), SOMAXCONN) == 0;
  if (is_open) return socket;
  const int error = errno;
  socket.reset();
  errno = error;
  return UniqueFd();
}

std::string token_of_user(const std::string& where) {
  const std::string token = environment_variable(kTokenVariable).value_or("");
  if (token.empty()) return random_id() + random_id();
  const auto is_plain = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
           c == '_';
  };
  bool all_plain = true;
  for (const char c : token) all_plain = all_plain && is_plain(c);
  if (all_plain && token.size() >= kShortestToken) return token;
  throw ConfigError({.what = std::string(kTokenVariable) + " must have at least " +
                             std::to_string(kShortestToken) +
                             " characters, letters, digits, - and _ alone",
                     .where = where,
                     .hint = "leave it out, and a token is made up and told"});
}

std::string shown_host(const std::string& host) {
  if (is_any_address(host)) return host_name();
  return host.find(':') == std::string::npos ? host : "[" + host + "]";
}

}  // namespace

PageAddress parse_page_address(const std::string& text, const std::string& where) {
  PageAddress address;
  if (text.empty() || text == "true") return address;
  std::string port = text;
  const size_t colon = text.rfind(':');
  const bool has_brackets = text.starts_with('[');
  const bool is_number = text.find_first_not_of("0123456789") == std::string::npos;
  if (!is_number) {
    const bool has_port =
        colon != std::string::npos && (!has_brackets || (colon > 0 && text[colon - 1] == ']'));
    port = has_port ? text.substr(colon + 1) : "";
    address.host = has_port ? text.substr(0, colon) : text;
    if (has_brackets && address.host.ends_with(']')) {
      address.host = address.host.substr(1, address.host.size() - 2);
    }
  }
  if (!port.empty()) {
    const char* end = port.data() + port.size();
    const auto [rest, error] = std::from_chars(port.data(), end, address.port);
    address.is_port_given = error == std::errc() && rest == end;
    const bool in_range = address.port >= 0 && address.port <= 65535;
    if (address.is_port_given && in_range && !address.host.empty()) return address;
  } else if (!address.host.empty() && !text.ends_with(':')) {
    return address;
  }
  throw ConfigError({.what = "\"" + text + "\" is not a port, nor an address and a port",
                     .where = where,
                     .hint = "--monitor, --monitor=8642 or --monitor=0.0.0.0:8642"});
}

OpenPage open_page(const PageAddress& address, const std::string& where) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int failure = getaddrinfo(address.host.c_str(), nullptr, &hints, &found);
  const std::unique_ptr<addrinfo, FreeAddresses> addresses(found);
  if (failure != 0) {
    throw ConfigError({.what = "cannot resolve " + address.host + ": " + gai_strerror(failure),
                       .where = where,
                       .hint = "name an address of this machine, or leave it out for loopback"});
  }
  OpenPage page{.socket = listener(*addresses, address.port)};
  if (!page.socket && errno == EADDRINUSE && !address.is_port_given) {
    page.socket = listener(*addresses, 0);
  }
  if (!page.socket) {
    const bool in_use = errno == EADDRINUSE;
    throw ConfigError({.what = "cannot serve the page at " + address.host + ", port " +
                               std::to_string(address.port) + ": " +
                               (in_use ? "the port is in use by another process"
                                       : std::string(std::strerror(errno))),
                       .where = where,
                       .hint = "name another port, or none: a free one is taken then"});
  }
  page.url =
      "http://" + shown_host(address.host) + ":" + std::to_string(port_of(page.socket.get())) + "/";
  if (is_loopback(addresses->ai_addr)) return page;
  page.token = token_of_user(where);
  page.url += "?token=" + page.token;
  return page;
}

}  // namespace accelerate::monitor
