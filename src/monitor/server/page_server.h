// The live page: which address gives what, and to whom.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>

#include "monitor/server/http_server.h"
#include "monitor/server/run_library.h"

namespace accelerate::monitor {

// Who may look. Where no token is needed only requests that name this machine as their host are
// answered: a page of somebody else in the user's browser could otherwise read them through a name
// that it lets lead here.
struct PageAccess {
  std::string token{};  // "": none is needed
};

// Answers one request about `runs`. Nothing can be changed through it. Does not throw.
Reply answer_page_request(const HttpRequest& request, const PageAccess& access, RunLibrary& runs);

// Serves the page until `is_over` says so, which is asked some times a second, and then sends what
// there is to those who still look. News go out once a second, or more often while they come.
class PageServer {
 public:
  static constexpr std::chrono::milliseconds kInterval{500};

  PageServer(const std::filesystem::path& path, UniqueFd listening, PageAccess access);

  // Waits for requests, for at most `timeout`, and serves them.
  void serve(std::chrono::milliseconds timeout);
  // Sends the newest state, and waits for at most a second until it has gone out.
  void say_goodbye();
  RunLibrary& runs() { return runs_; }

 private:
  RunLibrary runs_;
  PageAccess access_;
  HttpServer server_;
  std::chrono::steady_clock::time_point next_push_{};
};

}  // namespace accelerate::monitor
