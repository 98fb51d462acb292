// A server on the loopback that answers each request by a function and keeps what came.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace accelerate::test {

struct SmallRequest {
  std::string method;
  std::string path;
  std::string head;  // all lines
  std::string body;
};

class SmallServer {
 public:
  // What it sends is the result as it stands.
  using Answer = std::function<std::string(const SmallRequest&)>;

  explicit SmallServer(Answer answer) : answer_(std::move(answer)) {
    socket_ = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(::bind(socket_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(socket_, 16), 0);
    EXPECT_EQ(::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  ~SmallServer() {
    ::shutdown(socket_, SHUT_RDWR);
    thread_.join();
    ::close(socket_);
  }

  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
  std::vector<SmallRequest> requests() {
    const std::lock_guard lock(mutex_);
    return requests_;
  }

 private:
  void serve() {
    while (true) {
      const int client = ::accept(socket_, nullptr, nullptr);
      if (client < 0) return;
      const SmallRequest request = read(client);
      {
        const std::lock_guard lock(mutex_);
        requests_.push_back(request);
      }
      const std::string answer = answer_(request);
      ::send(client, answer.data(), answer.size(), MSG_NOSIGNAL);
      ::close(client);
    }
  }

  static SmallRequest read(int client) {
    std::string text;
    std::array<char, 4096> part{};
    size_t expected = std::string::npos;
    while (text.size() < expected) {
      const ssize_t count = ::recv(client, part.data(), part.size(), 0);
      if (count <= 0) break;
      text.append(part.data(), static_cast<size_t>(count));
      const size_t end = text.find("\r\n\r\n");
      const size_t length = text.find("Content-Length: ");
      if (end != std::string::npos && length < end) {
        expected = end + 4 + std::stoul(text.substr(length + 16));
      }
    }
    const size_t first = text.find(' ');
    const size_t end = text.find("\r\n\r\n");
    return {.method = text.substr(0, first),
            .path = text.substr(first + 1, text.find(' ', first + 1) - first - 1),
            .head = text.substr(0, end),
            .body = text.substr(end + 4)};
  }

  Answer answer_;
  int socket_ = -1;
  int port_ = 0;
  std::mutex mutex_;
  std::vector<SmallRequest> requests_;
  std::thread thread_;
};

inline std::string http_answer(int status, const std::string& body) {
  return "HTTP/1.1 " + std::to_string(status) +
         " X\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

}  // namespace accelerate::test
