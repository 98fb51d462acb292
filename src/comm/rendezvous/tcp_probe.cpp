#include "comm/rendezvous/tcp_probe.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <thread>
#include <utility>

namespace accelerate::comm {
namespace {

constexpr std::chrono::milliseconds kFirstPause{2};
constexpr std::chrono::milliseconds kLongestPause{100};
constexpr std::chrono::seconds kConnectPatience{1};
constexpr std::chrono::seconds kMoment{2};

UniqueFd connect_within(const addrinfo& address, std::chrono::milliseconds patience) {
  UniqueFd tried(socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!tried) return {};
  bool connected = connect(tried.get(), address.ai_addr, address.ai_addrlen) == 0;
  if (!connected && errno == EINPROGRESS) {
    pollfd waiting{.fd = tried.get(), .events = POLLOUT, .revents = 0};
    int error = 0;
    socklen_t length = sizeof error;
    connected = poll(&waiting, 1, static_cast<int>(patience.count())) == 1 &&
                getsockopt(tried.get(), SOL_SOCKET, SO_ERROR, &error, &length) == 0 && error == 0;
  }
  return connected ? std::move(tried) : UniqueFd();
}

}  // namespace

UniqueFd connect_within(const std::string& host, uint16_t port,
                        std::chrono::milliseconds patience) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return {};
  UniqueFd connected;
  for (addrinfo* at = found; at != nullptr && !connected; at = at->ai_next) {
    connected = connect_within(*at, patience);
  }
  freeaddrinfo(found);
  return connected;
}

bool wait_until_listening(const std::string& host, uint16_t port,
                          std::chrono::steady_clock::time_point deadline) {
  std::chrono::milliseconds pause = kFirstPause;
  while (!connect_within(host, port, kConnectPatience)) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, kLongestPause);
  }
  return true;
}

std::string wait_until_known(const std::string& host,
                             std::chrono::steady_clock::time_point deadline,
                             const std::function<void(const std::string&)>& tell) {
  const auto tell_at = std::chrono::steady_clock::now() + kMoment;
  bool has_told = false;
  while (true) {
    addrinfo* found = nullptr;
    const int result = getaddrinfo(host.c_str(), nullptr, nullptr, &found);
    if (result == 0) {
      freeaddrinfo(found);
      return "";
    }
    const auto now = std::chrono::steady_clock::now();
    if (now >= deadline) return gai_strerror(result);
    if (now >= tell_at && !has_told) {
      has_told = true;
      tell(gai_strerror(result));
    }
    std::this_thread::sleep_for(kLongestPause);
  }
}

}  // namespace accelerate::comm
