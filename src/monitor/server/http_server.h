// Answers requests on a socket. One thread, no waiting for anybody.
#pragma once

#include <chrono>
#include <functional>
#include <list>
#include <string>

#include "base/unique_fd.h"
#include "monitor/server/http_request.h"

namespace accelerate::monitor {

struct Reply {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string headers{};  // further lines, each with its end
  std::string body{};
  // Of an answer that goes on for as long as the client listens: called by push(); what it returns
  // is sent. Not called while the client has not read what was sent before.
  std::function<std::string()> next{};
};

// Serves whoever connects to a listening socket, within limits: kMostConnections at once (who comes
// beyond is told so), a head within kHeadTime, an idle connection for kIdleTime. For a client that
// does not read, no more than one answer is kept.
class HttpServer {
 public:
  static constexpr size_t kMostConnections = 64;
  static constexpr std::chrono::seconds kHeadTime{10};
  static constexpr std::chrono::seconds kIdleTime{60};

  using Handler = std::function<Reply(const HttpRequest&)>;

  // `handler` must not throw.
  HttpServer(UniqueFd listening, Handler handler);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Waits for at most `timeout` and serves what there is. A signal ends the waiting.
  void serve(std::chrono::milliseconds timeout);
  // Sends news to those who listen.
  void push();
  // Whether everything was sent that there is.
  bool is_idle() const;
  size_t connections() const { return connections_.size(); }

 private:
  struct Connection;

  void accept_all();
  void read_from(Connection& connection);
  void answer(Connection& connection);
  void write_to(Connection& connection);
  void drop_late();

  UniqueFd listening_;
  Handler handler_;
  std::list<Connection> connections_;
};

}  // namespace accelerate::monitor
