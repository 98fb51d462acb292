#include "tracking/http_client.h"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <optional>

#include "accelerate/errors.h"
#include "accelerate/tracker.h"
#include "base/unique_fd.h"

namespace accelerate::tracking {
namespace {

using HttpClock = std::chrono::steady_clock;

constexpr size_t kMostAnswer = size_t{64} << 20U;

TrackerError no_answer(const HttpServer& server, const std::string& what) {
  return TrackerError({.what = "no answer from the tracking server: " + what,
                       .where = "http://" + server.host + ":" + server.port + server.base_path,
                       .hint = "check that the server runs and that this machine reaches it; what "
                               "is logged waits meanwhile"});
}

std::string system_text(int error) {
  return std::strerror(error);
}  // NOLINT(concurrency-mt-unsafe)

// Waits until the socket can be read or written.
void await(int socket, short what, HttpClock::time_point deadline, const HttpServer& server) {
  while (true) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - HttpClock::now()).count();
    if (left <= 0) throw no_answer(server, "it took too long");
    pollfd watched{.fd = socket, .events = what, .revents = 0};
    const int count = ::poll(&watched, 1, static_cast<int>(left));
    if (count > 0) return;
    if (count < 0 && errno != EINTR) throw no_answer(server, system_text(errno));
  }
}

UniqueFd connect_to(const HttpServer& server, HttpClock::time_point deadline) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int problem = ::getaddrinfo(server.host.c_str(), server.port.c_str(), &wanted, &found);
  if (problem != 0) throw no_answer(server, ::gai_strerror(problem));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> addresses(found, &::freeaddrinfo);
  std::string last = "it has no address";
  for (const addrinfo* address = found; address != nullptr; address = address->ai_next) {
    UniqueFd socket(::socket(address->ai_family,
                             address->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK,
                             address->ai_protocol));
    if (!socket) continue;
    if (::connect(socket.get(), address->ai_addr, address->ai_addrlen) != 0) {
      if (errno != EINPROGRESS) {
        last = system_text(errno);
        continue;
      }
      await(socket.get(), POLLOUT, deadline, server);
      int error = 0;
      socklen_t size = sizeof error;
      ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
      if (error != 0) {
        last = system_text(error);
        continue;
      }
    }
    return socket;
  }
  throw no_answer(server, last);
}

void send_all(int socket, std::string_view bytes, HttpClock::time_point deadline,
              const HttpServer& server) {
  while (!bytes.empty()) {
    const ssize_t count = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count > 0) {
      bytes.remove_prefix(static_cast<size_t>(count));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      await(socket, POLLOUT, deadline, server);
    } else if (errno != EINTR) {
      throw no_answer(server, system_text(errno));
    }
  }
}

// Everything up to the end of the connection, which the request asks for.
std::string receive_all(int socket, HttpClock::time_point deadline, const HttpServer& server) {
  std::string received;
  std::array<char, 16384> part{};
  while (received.size() < kMostAnswer) {
    const ssize_t count = ::recv(socket, part.data(), part.size(), 0);
    if (count > 0) {
      received.append(part.data(), static_cast<size_t>(count));
    } else if (count == 0) {
      return received;
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      await(socket, POLLIN, deadline, server);
    } else if (errno != EINTR) {
      throw no_answer(server, system_text(errno));
    }
  }
  throw no_answer(server, "its answer is too long");
}

// The value of a header, in lower case; nothing where it is missing.
std::optional<std::string> header_value(std::string_view head, std::string_view name) {
  std::string lower(head);
  std::ranges::transform(lower, lower.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  const size_t at = lower.find("\r\n" + std::string(name) + ":");
  if (at == std::string::npos) return std::nullopt;
  const size_t begin = lower.find_first_not_of(" \t", at + 3 + name.size());
  if (begin == std::string::npos) return std::nullopt;
  return lower.substr(begin, lower.find("\r\n", begin) - begin);
}

// Nothing if it is not whole.
std::optional<std::string> joined_chunks(std::string_view body) {
  std::string joined;
  while (true) {
    const size_t line = body.find("\r\n");
    if (line == std::string_view::npos) return std::nullopt;
    size_t size = 0;
    const auto [end, error] = std::from_chars(body.data(), body.data() + line, size, 16);
    if (error != std::errc() || end == body.data()) return std::nullopt;
    if (size == 0) return joined;
    body.remove_prefix(line + 2);
    if (size > body.size() || body.size() - size < 2) return std::nullopt;
    joined += body.substr(0, size);
    body.remove_prefix(size + 2);
  }
}

HttpAnswer parse_answer(std::string_view text, const HttpServer& server) {
  constexpr size_t kStatusAt = 9;  // after "HTTP/1.1 "
  const size_t end = text.find("\r\n\r\n");
  HttpAnswer answer;
  if (!text.starts_with("HTTP/1.") || end == std::string_view::npos || end < kStatusAt + 3 ||
      std::from_chars(text.data() + kStatusAt, text.data() + kStatusAt + 3, answer.status).ec !=
          std::errc()) {
    throw no_answer(server, text.empty() ? "it closed the connection" : "it does not speak HTTP");
  }
  const std::string_view head = text.substr(0, end + 2);
  const std::string_view body = text.substr(end + 4);
  if (header_value(head, "transfer-encoding").value_or("").find("chunked") != std::string::npos) {
    const auto joined = joined_chunks(body);
    if (!joined) throw no_answer(server, "its answer is cut off");
    answer.body = *joined;
    return answer;
  }
  if (const auto length = header_value(head, "content-length")) {
    size_t size = 0;
    std::from_chars(length->data(), length->data() + length->size(), size);
    if (size > body.size()) throw no_answer(server, "its answer is cut off");
    answer.body = body.substr(0, size);
    return answer;
  }
  answer.body = body;
  return answer;
}

}  // namespace

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    const size_t count = std::min<size_t>(3, bytes.size() - i);
    for (size_t k = 0; k < 3; ++k) {
      group = group << 8U | (k < count ? static_cast<uint8_t>(bytes[i + k]) : 0U);
    }
    for (size_t k = 0; k < 4; ++k) {
      text += k <= count ? kDigits[(group >> (18 - 6 * k)) & 0x3fU] : '=';
    }
  }
  return text;
}

std::string url_encoded(std::string_view text, UrlPart part) {
  constexpr std::string_view kHex = "0123456789ABCDEF";
  std::string encoded;
  for (const char c : text) {
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                          (c >= '0' && c <= '9') ||
                          std::string_view("-._~").find(c) != std::string_view::npos ||
                          (c == '/' && part == UrlPart::kPath);
    if (is_plain) {
      encoded += c;
      continue;
    }
    const auto byte = static_cast<uint8_t>(c);
    ((encoded += '%') += kHex[byte >> 4U]) += kHex[byte & 0xfU];
  }
  return encoded;
}

std::string url_decoded(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned byte = 0;
    const char* digits = text.data() + i + 1;
    if (text[i] == '%' && text.size() - i > 2 &&
        std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2) {
      decoded += static_cast<char>(static_cast<uint8_t>(byte));
      i += 2;
    } else {
      decoded += text[i];
    }
  }
  return decoded;
}

HttpServer parse_http_url(std::string_view url, const std::string& where) {
  constexpr std::string_view kScheme = "http://";
  const auto refuse = [&](const std::string& what, const std::string& hint) {
    return ConfigError(
        {.what = "\"" + std::string(url) + "\" " + what, .where = where, .hint = hint});
  };
  if (url.starts_with("https://")) {
    throw refuse("is a server that wants an encrypted connection",
                 "only plain http:// is supported: run a proxy such as stunnel or an ssh tunnel on "
                 "this machine and name that, or log to a folder");
  }
  if (!url.starts_with(kScheme)) {
    throw refuse("is not the address of a server", "write it as http://host:port");
  }
  HttpServer server;
  std::string_view rest = url.substr(kScheme.size());
  const size_t slash = rest.find('/');
  std::string_view authority = rest.substr(0, slash);
  if (slash != std::string_view::npos) server.base_path = rest.substr(slash);
  while (server.base_path.ends_with('/')) server.base_path.pop_back();
  if (const size_t at = authority.rfind('@'); at != std::string_view::npos) {
    server.headers.emplace_back("Authorization", "Basic " + base64(authority.substr(0, at)));
    authority.remove_prefix(at + 1);
  }
  server.port = "80";
  const size_t bracket = authority.find(']');  // [::1]:5000
  const size_t colon = authority.find(':', bracket == std::string_view::npos ? 0 : bracket);
  if (colon != std::string_view::npos) server.port = authority.substr(colon + 1);
  server.host = authority.substr(0, colon);
  if (server.host.starts_with('[') && server.host.ends_with(']')) {
    server.host = server.host.substr(1, server.host.size() - 2);
  }
  const bool is_number = !server.port.empty() && server.port.size() <= 5 &&
                         server.port.find_first_not_of("0123456789") == std::string::npos;
  // What could add a header of its own is refused too.
  if (server.host.empty() || !is_number ||
      std::ranges::any_of(url, [](char c) { return static_cast<uint8_t>(c) <= ' '; })) {
    throw refuse("is not the address of a server", "write it as http://host:port");
  }
  return server;
}

HttpAnswer http_request(const HttpServer& server, std::string_view method, std::string_view path,
                        std::string_view content_type, std::string_view body,
                        std::chrono::milliseconds timeout) {
  const auto deadline = HttpClock::now() + timeout;
  std::string request(method);
  request += ' ' + server.base_path;
  request += path;
  request += " HTTP/1.1\r\nHost: ";
  const bool is_ipv6 = server.host.find(':') != std::string::npos;
  request += is_ipv6 ? '[' + server.host + ']' : server.host;
  request += ':' + server.port + "\r\nConnection: close\r\nAccept: */*\r\n";
  for (const auto& [name, value] : server.headers) request += name + ": " + value + "\r\n";
  if (!content_type.empty()) {
    request += "Content-Type: ";
    request += content_type;
    request += "\r\n";
  }
  request += "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n";
  const UniqueFd socket = connect_to(server, deadline);
  send_all(socket.get(), request, deadline, server);
  send_all(socket.get(), body, deadline, server);
  return parse_answer(receive_all(socket.get(), deadline, server), server);
}

}  // namespace accelerate::tracking
