#include "monitor/server/http_server.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

namespace accelerate::monitor {
namespace {

using Clock = std::chrono::steady_clock;

// For the other side to read an answer after which the connection ends.
constexpr std::chrono::seconds kLeaveTime{2};

std::string_view reason_of(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 302:
      return "Found";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 413:
      return "Content Too Large";
    case 414:
      return "URI Too Long";
    case 431:
      return "Request Header Fields Too Large";
    case 503:
      return "Service Unavailable";
    case 505:
      return "HTTP Version Not Supported";
    default:
      return "Error";
  }
}

// What a page of ours may do, whoever got text into it: run our own scripts and speak to us.
constexpr std::string_view kSecurityHeaders =
    "X-Content-Type-Options: nosniff\r\n"
    "Referrer-Policy: no-referrer\r\n"
    "Cross-Origin-Resource-Policy: same-origin\r\n"
    "Cross-Origin-Opener-Policy: same-origin\r\n"
    "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'\r\n";

std::string head_of(const Reply& reply, bool keeps_open) {
  std::string head = "HTTP/1.1 " + std::to_string(reply.status) + " ";
  head += reason_of(reply.status);
  head += "\r\nContent-Type: " + reply.type + "\r\n";
  head += kSecurityHeaders;
  head += reply.headers;
  if (reply.headers.find("Cache-Control") == std::string::npos) {
    head += "Cache-Control: no-store\r\n";
  }
  if (!reply.next) head += "Content-Length: " + std::to_string(reply.body.size()) + "\r\n";
  if (reply.status == 405) head += "Allow: GET, HEAD\r\n";
  head += keeps_open && !reply.next ? "Connection: keep-alive\r\n" : "Connection: close\r\n";
  return head + "\r\n";
}

Reply refusal(int status) {
  return {.status = status,
          .body = std::to_string(status) + " " + std::string(reason_of(status)) + "\n"};
}

}  // namespace

struct HttpServer::Connection {
  UniqueFd socket;
  std::string input{};
  std::string output{};
  size_t written = 0;
  std::function<std::string()> next{};  // of one who listens
  bool closes = false;                  // when all is written
  bool is_gone = false;
  Clock::time_point deadline{};  // for a head, or for the reader of what is written

  size_t unread() const { return output.size() - written; }
};

HttpServer::HttpServer(UniqueFd listening, Handler handler)
    : listening_(std::move(listening)), handler_(std::move(handler)) {
  fcntl(listening_.get(), F_SETFL, O_NONBLOCK);
}

HttpServer::~HttpServer() = default;

void HttpServer::serve(std::chrono::milliseconds timeout) {
  std::vector<pollfd> fds{{listening_.get(), POLLIN, 0}};
  for (const Connection& each : connections_) {
    const auto events = static_cast<short>(each.unread() > 0 ? POLLIN | POLLOUT : POLLIN);
    fds.push_back({each.socket.get(), events, 0});
  }
  if (poll(fds.data(), fds.size(), static_cast<int>(timeout.count())) <= 0) {
    for (pollfd& each : fds) each.revents = 0;
  }
  size_t place = 1;
  for (Connection& each : connections_) {
    const short events = fds[place++].revents;
    if ((events & (POLLIN | POLLHUP | POLLERR)) != 0) read_from(each);
    if ((events & POLLOUT) != 0) {
      write_to(each);
      answer(each);
    }
  }
  drop_late();
  if (fds[0].revents != 0) accept_all();
}

void HttpServer::accept_all() {
  while (true) {
    UniqueFd socket(accept4(listening_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket) return;
    Connection connection{.socket = std::move(socket), .deadline = Clock::now() + kHeadTime};
    if (connections_.size() >= kMostConnections) {
      const Reply full = refusal(503);
      const std::string text = head_of(full, false) + full.body;
      // One try: who does not take it is not waited for.
      (void)!::send(connection.socket.get(), text.data(), text.size(), MSG_NOSIGNAL);
      continue;
    }
    connections_.push_back(std::move(connection));
  }
}

void HttpServer::read_from(Connection& connection) {
  char buffer[4096];
  const ssize_t count = recv(connection.socket.get(), buffer, sizeof buffer, 0);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count <= 0) {
    connection.is_gone = true;
    return;
  }
  if (connection.next || connection.closes) return;  // nothing more is expected: it is dropped
  connection.input.append(buffer, static_cast<size_t>(count));
  answer(connection);
}

// One after the other; the next one waits until the answer before it is on its way.
void HttpServer::answer(Connection& connection) {
  while (!connection.closes && !connection.next && !connection.is_gone &&
         connection.unread() == 0) {
    const ParsedRequest parsed = parse_request(connection.input);
    if (parsed.refusal == 0 && parsed.consumed == 0) return;
    Reply reply = parsed.refusal != 0 ? refusal(parsed.refusal) : handler_(parsed.request);
    const bool keeps_open = parsed.refusal == 0 && parsed.request.keeps_open;
    connection.output += head_of(reply, keeps_open);
    if (!parsed.request.is_head) connection.output += reply.body;
    connection.closes = !keeps_open;
    connection.input.erase(0, parsed.consumed);
    if (reply.next && !parsed.request.is_head) {
      connection.next = std::move(reply.next);
      connection.closes = false;
      connection.output += connection.next();
    } else if (reply.next) {
      connection.closes = true;
    }
    connection.deadline = Clock::now() + kIdleTime;
    write_to(connection);
  }
  if (connection.closes) connection.input.clear();
  if (connection.input.size() > kMostHeadBytes) connection.is_gone = true;  // it asks too fast
}

void HttpServer::write_to(Connection& connection) {
  while (connection.unread() > 0) {
    const ssize_t count =
        send(connection.socket.get(), connection.output.data() + connection.written,
             connection.unread(), MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return;
    if (count <= 0) {
      connection.is_gone = true;
      return;
    }
    connection.written += static_cast<size_t>(count);
    connection.deadline = Clock::now() + kIdleTime;
  }
  connection.output.clear();
  connection.written = 0;
  // The other side may still be sending what nobody wants. If it were cut off now, it would never
  // see the answer.
  if (connection.closes) {
    shutdown(connection.socket.get(), SHUT_WR);
    connection.deadline = Clock::now() + kLeaveTime;
  }
}

void HttpServer::push() {
  for (Connection& each : connections_) {
    if (!each.next || each.is_gone || each.unread() > 0) continue;
    each.output += each.next();
    write_to(each);
    each.deadline = Clock::now() + kIdleTime;
  }
  drop_late();
}

void HttpServer::drop_late() {
  const auto now = Clock::now();
  connections_.remove_if([&](const Connection& each) {
    // Who listens has no deadline while all was read.
    const bool is_late = now >= each.deadline && (!each.next || each.unread() > 0);
    return each.is_gone || is_late;
  });
}

bool HttpServer::is_idle() const {
  return std::ranges::all_of(connections_, [](const Connection& c) { return c.unread() == 0; });
}

}  // namespace accelerate::monitor
