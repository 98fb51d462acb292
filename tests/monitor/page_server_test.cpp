// The page over raw sockets: who gets what, and what is refused.
#include "monitor/server/page_server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "accelerate/errors.h"
#include "monitor/scratch.h"
#include "monitor/server/http_request.h"
#include "monitor/server/listening.h"
#include "run_record/record_writer.h"

namespace accelerate::monitor {
namespace {

namespace rec = run_record;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

// --- Heads of requests -------------------------------------------------------------------------

ParsedRequest parsed(const std::string& head) { return parse_request(head); }

TEST(HttpRequest, IsReadWithItsQueryAndCookies) {
  const auto found = parsed(
      "GET /api/state?runs=a%20b,c&x= HTTP/1.1\r\nHost: localhost:1\r\nCookie: a=1; token=z "
      "\r\n\r\nrest");
  EXPECT_EQ(found.refusal, 0);
  EXPECT_EQ(found.request.path, "/api/state");
  EXPECT_EQ(found.request.parameter("runs"), "a b,c");
  EXPECT_EQ(found.request.parameter("x"), "");
  EXPECT_EQ(found.request.cookie("token"), "z");
  EXPECT_EQ(found.request.cookie("toke"), "");
  EXPECT_TRUE(found.request.keeps_open);
  EXPECT_TRUE(parsed("HEAD / HTTP/1.0\r\n\r\n").request.is_head);
  EXPECT_FALSE(parsed("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").request.keeps_open);
}

TEST(HttpRequest, IsWaitedForUntilItIsWhole) {
  const std::string head = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
  for (size_t size = 0; size < head.size(); ++size) {
    const auto found = parsed(head.substr(0, size));
    EXPECT_EQ(found.refusal, 0) << size;
    EXPECT_EQ(found.consumed, 0U) << size;
  }
  EXPECT_EQ(parsed(head).consumed, head.size());
}

TEST(HttpRequest, WhatIsWrongIsRefused) {
  const std::string host = "Host: a\r\n";
  const std::vector<std::pair<std::string, int>> cases = {
      {"POST / HTTP/1.1\r\n" + host + "\r\n", 405},
      {"DELETE /api/runs HTTP/1.1\r\n" + host + "\r\n", 405},
      {"GET / HTTP/2.0\r\n" + host + "\r\n", 505},
      {"GET http://other/ HTTP/1.1\r\n" + host + "\r\n", 400},
      {"GET /a b HTTP/1.1\r\n" + host + "\r\n", 400},
      {"GET /%zz HTTP/1.1\r\n" + host + "\r\n", 400},
      {"GET /%00 HTTP/1.1\r\n" + host + "\r\n", 400},
      {"GET /\r\n" + host + "\r\n", 400},
      {"GET / HTTP/1.1\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\n" + host + host + "\r\n", 400},
      {"GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\n" + host + " folded\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\n" + host + "X: a\rb\r\n\r\n", 400},
      {"GET / HTTP/1.1\n" + host + "\n", 400},
      {"GET / HTTP/1.1\r\n" + host + "Content-Length: 5\r\n\r\n", 413},
      {"GET / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n", 413},
      {"GET /" + std::string(3000, 'a') + " HTTP/1.1\r\n" + host + "\r\n", 414},
      {"GET / HTTP/1.1\r\n" + host + "X: " + std::string(9000, 'a'), 431},
      {std::string(9000, 'a'), 431},
  };
  for (const auto& [head, status] : cases) {
    EXPECT_EQ(parsed(head).refusal, status) << head.substr(0, 80);
  }
  std::string many = "GET / HTTP/1.1\r\n" + host;
  for (int i = 0; i < 80; ++i) many += "X" + std::to_string(i) + ": 1\r\n";
  EXPECT_EQ(parsed(many + "\r\n").refusal, 431);
}

// --- The address -------------------------------------------------------------------------------

TEST(PageAddress, IsAPortOrAnAddressOrBoth) {
  EXPECT_EQ(parse_page_address("", "x").host, "127.0.0.1");
  EXPECT_EQ(parse_page_address("", "x").port, kUsualPort);
  EXPECT_EQ(parse_page_address("9000", "x").port, 9000);
  EXPECT_EQ(parse_page_address("0.0.0.0:0", "x").host, "0.0.0.0");
  EXPECT_TRUE(parse_page_address("0.0.0.0:0", "x").is_port_given);
  EXPECT_EQ(parse_page_address("[::]:80", "x").host, "::");
  EXPECT_EQ(parse_page_address("node1", "x").host, "node1");
  for (const char* wrong : {"70000", "a:b", ":80", "node1:", "1e3:"}) {
    try {
      parse_page_address(wrong, "--monitor");
      FAIL() << wrong;
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.message(), HasSubstr(wrong));
      EXPECT_EQ(error.where(), "--monitor");
    }
  }
}

TEST(PageAddress, AnotherThanLoopbackNeedsAToken) {
  EXPECT_EQ(open_page(parse_page_address("127.0.0.1:0", "x"), "x").token, "");
  const OpenPage open = open_page(parse_page_address("0.0.0.0:0", "x"), "x");
  EXPECT_EQ(open.token.size(), 32U);
  EXPECT_THAT(open.url, HasSubstr("/?token=" + open.token));
  setenv(kTokenVariable, "of-the-user", 1);
  EXPECT_EQ(open_page(parse_page_address("0.0.0.0:0", "x"), "x").token, "of-the-user");
  setenv(kTokenVariable, "short", 1);
  EXPECT_THROW(open_page(parse_page_address("0.0.0.0:0", "x"), "x"), ConfigError);
  unsetenv(kTokenVariable);
}

TEST(PageAddress, APortThatIsTakenIsTold) {
  const OpenPage first = open_page(parse_page_address("127.0.0.1:0", "x"), "x");
  const std::string port = first.url.substr(first.url.rfind(':') + 1);
  try {
    open_page(parse_page_address(port.substr(0, port.size() - 1), "x"), "--monitor");
    FAIL() << "no error";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.message(), HasSubstr("in use by another process"));
  }
}

// --- The server --------------------------------------------------------------------------------

class PageServerTest : public testing::Test {
 protected:
  void serve(const std::string& token = "") {
    write_run("one", 0.5);
    write_run("two", 0.25);
    OpenPage page = open_page(parse_page_address("127.0.0.1:0", "x"), "x");
    port_ = std::atoi(page.url.c_str() + page.url.rfind(':') + 1);
    server_ = std::make_unique<PageServer>(scratch_.path() / "one", std::move(page.socket),
                                           PageAccess{.token = token});
    thread_ = std::thread([this] {
      while (!stops_) server_->serve(std::chrono::milliseconds(10));
      server_->say_goodbye();
    });
  }
  ~PageServerTest() override {
    stops_ = true;
    if (thread_.joinable()) thread_.join();
  }

  void write_run(const std::string& name, double loss) {
    writers_.push_back(std::make_unique<rec::RecordWriter>(
        scratch_.path() / name, rec::Begin{.host = "here", .program = "train"}));
    log(writers_.size() - 1, 1, loss);
  }
  void log(size_t run, int64_t step, double loss) {
    const std::pair<std::string_view, double> values[] = {{"loss", loss}};
    writers_[run]->append_values(step, values);
    writers_[run]->flush();
  }

  UniqueFd connected() const {
    UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port_));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    return socket;
  }
  // Until `end` was read or the server has closed.
  static std::string read_until(const UniqueFd& socket, const std::string& end) {
    std::string text;
    char buffer[65536];
    while (text.find(end) == std::string::npos || end.empty()) {
      pollfd readable{socket.get(), POLLIN, 0};
      if (poll(&readable, 1, 60'000) != 1) return text + "[nothing more came]";
      const ssize_t count = recv(socket.get(), buffer, sizeof buffer, 0);
      if (count <= 0) break;
      text.append(buffer, static_cast<size_t>(count));
    }
    return text;
  }
  std::string asked(const std::string& request) const {
    const UniqueFd socket = connected();
    send(socket.get(), request.data(), request.size(), MSG_NOSIGNAL);
    return read_until(socket, "");
  }
  std::string got(const std::string& target, const std::string& headers = "") const {
    return asked("GET " + target + " HTTP/1.1\r\nHost: localhost:" + std::to_string(port_) +
                 "\r\nConnection: close\r\n" + headers + "\r\n");
  }
  static std::string body_of(const std::string& answer) {
    return answer.substr(std::min(answer.size(), answer.find("\r\n\r\n") + 4));
  }

  Scratch scratch_;
  std::vector<std::unique_ptr<rec::RecordWriter>> writers_;
  std::unique_ptr<PageServer> server_;
  std::thread thread_;
  std::atomic<bool> stops_{false};
  int port_ = 0;
};

TEST_F(PageServerTest, GivesThePageAndItsParts) {
  serve();
  const std::string page = got("/");
  EXPECT_THAT(page, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(page, HasSubstr("Content-Type: text/html; charset=utf-8\r\n"));
  EXPECT_THAT(page, HasSubstr("Content-Security-Policy: default-src 'none'; script-src 'self'"));
  EXPECT_THAT(page, HasSubstr("X-Content-Type-Options: nosniff"));
  EXPECT_THAT(page, HasSubstr("<html lang=\"en\">"));
  EXPECT_THAT(page, Not(HasSubstr("http://"))) << "something comes from elsewhere";
  for (const char* part : {"/page.css", "/page.js", "/charts.js", "/panels.js", "/theme.js"}) {
    const std::string answer = got(part);
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n")) << part;
    EXPECT_THAT(page + body_of(got("/page.js")), HasSubstr(std::string(part).substr(1)));
  }
  EXPECT_THAT(got("/nothing"), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(got("/../../etc/passwd"), StartsWith("HTTP/1.1 404"));
}

TEST_F(PageServerTest, TellsRunsAndTheirState) {
  serve();
  const auto runs = nlohmann::json::parse(body_of(got("/api/runs")));
  EXPECT_THAT(runs["runs"], testing::UnorderedElementsAre("one", "two"));
  EXPECT_EQ(runs["first"], "one");
  const auto state = nlohmann::json::parse(body_of(got("/api/state?runs=two,one")));
  ASSERT_EQ(state.size(), 2U);
  EXPECT_EQ(state[0]["run"], "two");
  EXPECT_EQ(state[0]["curves"]["value:loss"]["points"][0][2], 0.25);
  EXPECT_THAT(got("/api/state?runs=../one"), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(got("/events?runs=three"), StartsWith("HTTP/1.1 404"));
}

TEST_F(PageServerTest, SendsNewsToWhoListens) {
  serve();
  const UniqueFd socket = connected();
  const std::string request = "GET /events?runs=one HTTP/1.1\r\nHost: localhost\r\n\r\n";
  send(socket.get(), request.data(), request.size(), MSG_NOSIGNAL);
  const std::string first = read_until(socket, "}\n\n");
  EXPECT_THAT(first, HasSubstr("Content-Type: text/event-stream\r\n"));
  EXPECT_THAT(first, HasSubstr("data: {\"run\":\"one\",\"whole\":true"));
  log(0, 2, 0.125);
  EXPECT_THAT(read_until(socket, "0.125"), HasSubstr("\"from\":1"));
}

TEST_F(PageServerTest, AnswersRequestsThatFollowEachOther) {
  serve();
  const UniqueFd socket = connected();
  std::string requests;
  for (int i = 0; i < 20; ++i) requests += "HEAD /api/runs HTTP/1.1\r\nHost: localhost\r\n\r\n";
  requests += "GET /icon.svg HTTP/1.1\r\nHost: localhost\r\n\r\n";
  send(socket.get(), requests.data(), requests.size(), MSG_NOSIGNAL);
  const std::string answers = read_until(socket, "</svg>");
  size_t count = 0;
  for (size_t at = 0; (at = answers.find("HTTP/1.1 200", at)) != std::string::npos; ++at) ++count;
  EXPECT_EQ(count, 21U);
  EXPECT_THAT(answers, Not(HasSubstr("\"first\""))) << "HEAD has no body";
}

TEST_F(PageServerTest, OnlyThisMachineMayLookWithoutAToken) {
  serve();
  const std::string foreign =
      asked("GET /api/runs HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(foreign, StartsWith("HTTP/1.1 403"));
  EXPECT_THAT(foreign, Not(HasSubstr("\"runs\"")));
  for (const char* host : {"127.0.0.1:80", "[::1]:80", "a.localhost"}) {
    EXPECT_THAT(asked("GET /api/runs HTTP/1.1\r\nConnection: close\r\nHost: " + std::string(host) +
                      "\r\n\r\n"),
                StartsWith("HTTP/1.1 200"))
        << host;
  }
}

TEST_F(PageServerTest, ATokenOpensThePageAndLeavesTheAddress) {
  serve("sesame-sesame");
  for (const char* target : {"/", "/api/runs", "/events", "/page.js", "/?token=sesame-sesam"}) {
    EXPECT_THAT(got(target), StartsWith("HTTP/1.1 401")) << target;
  }
  const std::string entered = got("/?token=sesame-sesame");
  EXPECT_THAT(entered, StartsWith("HTTP/1.1 302"));
  EXPECT_THAT(entered, HasSubstr("Location: /\r\n"));
  EXPECT_THAT(entered, HasSubstr("Set-Cookie: accelerate_monitor=sesame-sesame; Path=/; HttpOnly; "
                                 "SameSite=Strict\r\n"));
  EXPECT_THAT(got("/", "Cookie: accelerate_monitor=sesame-sesame\r\n"), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(got("/api/runs", "Authorization: Bearer sesame-sesame\r\n"),
              StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(got("/", "Cookie: accelerate_monitor=other-sesame1\r\n"), StartsWith("HTTP/1.1 401"));
}

TEST_F(PageServerTest, RefusesWhatItDoesNotUnderstandAndGoesOn) {
  serve();
  EXPECT_THAT(asked("POST /api/runs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc"),
              StartsWith("HTTP/1.1 405"));
  EXPECT_THAT(asked(std::string(100'000, 'x')), StartsWith("HTTP/1.1 431"));
  EXPECT_THAT(asked("\r\n\r\n"), StartsWith("HTTP/1.1 400"));
  EXPECT_THAT(got("/api/runs"), StartsWith("HTTP/1.1 200"));
}

TEST_F(PageServerTest, ManyWhoSayNothingDoNotKeepOthersOut) {
  serve();
  std::vector<UniqueFd> silent;
  for (size_t i = 0; i < HttpServer::kMostConnections; ++i) silent.push_back(connected());
  std::string answer;
  // Who comes beyond the limit is told so. The server may not have seen all of them yet.
  for (int attempt = 0; attempt < 200 && !answer.starts_with("HTTP/1.1 503"); ++attempt) {
    answer = got("/api/runs");
  }
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 503"));
  silent.clear();
  for (int attempt = 0; attempt < 1000 && !answer.starts_with("HTTP/1.1 200"); ++attempt) {
    answer = got("/api/runs");
  }
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200"));
}

}  // namespace
}  // namespace accelerate::monitor
