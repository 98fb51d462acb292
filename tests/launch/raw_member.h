// A connection to the launcher of the main machine that says what a test wants.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <string>
#include <thread>

#include "base/unique_fd.h"
#include "launch/launcher_run.h"

namespace accelerate::test {

// Connects to `port` of this machine as soon as somebody listens. `receive_buffer` bytes are asked
// for (0: the system's choice). Throws if nobody does within kDeadline.
inline UniqueFd connect_to_main(int port, int receive_buffer = 0) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  const auto deadline = std::chrono::steady_clock::now() + kDeadline;
  while (std::chrono::steady_clock::now() < deadline) {
    UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (receive_buffer > 0) {
      setsockopt(socket.get(), SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    }
    if (connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) {
      return socket;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  throw std::runtime_error("nobody listens at port " + std::to_string(port));
}

inline void say(const UniqueFd& socket, const std::string& words) {
  ASSERT_EQ(send(socket.get(), words.data(), words.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(words.size()));
}

// How machine 1 of two with two workers introduces itself.
inline std::string hello_of(const std::string& identity) {
  return "hello version=1 machine=1 machines=2 processes=2 host=b identity=" + identity + "\n";
}

// Reads until `word` has come or the connection has ended; what came.
inline std::string read_until(const UniqueFd& socket, const std::string& word) {
  const timeval patience{.tv_sec = kDeadline.count(), .tv_usec = 0};
  setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  std::string text;
  char buffer[4096];
  // What was searched is not searched again: a launcher may have said megabytes.
  for (size_t from = 0; text.find(word, from) == std::string::npos;) {
    from = text.size() < word.size() ? 0 : text.size() - word.size() + 1;
    const ssize_t count = recv(socket.get(), buffer, sizeof buffer, 0);
    if (count <= 0) break;
    text.append(buffer, static_cast<size_t>(count));
  }
  return text;
}

}  // namespace accelerate::test
