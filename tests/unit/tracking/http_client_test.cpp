// Plain HTTP.
#include "tracking/http_client.h"

#include <gmock/gmock.h>

#include "accelerate/tracker.h"
#include "support/error_of.h"
#include "unit/tracking/small_server.h"

namespace accelerate::tracking {
namespace {

using namespace std::chrono_literals;
using test::http_answer;
using test::SmallServer;
using testing::HasSubstr;

HttpAnswer get(const SmallServer& server, std::chrono::milliseconds timeout = 60s) {
  return http_request(parse_http_url(server.url(), "here"), "GET", "/x?y=1", "", "", timeout);
}

TEST(HttpClient, SendsARequestAndReadsItsAnswer) {
  SmallServer server([](const auto&) { return http_answer(201, "made"); });
  HttpServer at = parse_http_url("http://user:word@" + server.url().substr(7) + "/base/", "here");
  const HttpAnswer answer = http_request(at, "POST", "/a/b", "text/plain", "the body", 60s);
  EXPECT_EQ(answer.status, 201);
  EXPECT_EQ(answer.body, "made");
  const auto request = server.requests().at(0);
  EXPECT_EQ(request.method, "POST");
  EXPECT_EQ(request.path, "/base/a/b");
  EXPECT_EQ(request.body, "the body");
  EXPECT_THAT(request.head, HasSubstr("\r\nAuthorization: Basic dXNlcjp3b3Jk"));
  EXPECT_THAT(request.head, HasSubstr("\r\nContent-Type: text/plain"));
}

TEST(HttpClient, ReadsAnAnswerInChunks) {
  SmallServer server([](const auto&) {
    return std::string(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        "4\r\nabcd\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n");
  });
  EXPECT_EQ(get(server).body, "abcd0123456789");
}

TEST(HttpClient, ReadsAnAnswerThatEndsWithTheConnection) {
  SmallServer server([](const auto&) { return std::string("HTTP/1.0 200 OK\r\n\r\nall of it"); });
  EXPECT_EQ(get(server).body, "all of it");
}

TEST(HttpClient, AnswerThatIsNotWholeIsAnError) {
  for (const char* text :
       {"", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort",
        "SSH-2.0-x\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffff\r\nabc",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nabc"}) {
    SmallServer server([&](const auto&) { return std::string(text); });
    EXPECT_THAT(test::error_text<TrackerError>([&] { get(server); }),
                HasSubstr("no answer from the tracking server: it"))
        << text;
  }
}

TEST(HttpClient, ServerThatIsSilentIsAnErrorAfterTheTimeout) {
  std::atomic<bool> over{false};
  SmallServer server([&](const auto&) {
    while (!over) std::this_thread::sleep_for(1ms);
    return std::string();
  });
  EXPECT_THAT(test::error_text<TrackerError>([&] { get(server, 50ms); }),
              HasSubstr("it took too long"));
  over = true;
}

TEST(HttpClient, NobodyThereIsAnErrorThatNamesTheServer) {
  std::string url;
  {
    url = SmallServer([](const auto&) { return std::string(); }).url();
  }
  const std::string text = test::error_text<TrackerError>(
      [&] { http_request(parse_http_url(url, "here"), "GET", "/", "", "", 60s); });
  EXPECT_THAT(text, HasSubstr("Connection refused"));
  EXPECT_THAT(text, HasSubstr(url));
}

TEST(HttpUrls, NameHostPortAndPath) {
  const HttpServer plain = parse_http_url("http://tracking.example", "here");
  EXPECT_EQ(plain.host, "tracking.example");
  EXPECT_EQ(plain.port, "80");
  EXPECT_EQ(plain.base_path, "");
  const HttpServer v6 = parse_http_url("http://[::1]:5000/a/b//", "here");
  EXPECT_EQ(v6.host, "::1");
  EXPECT_EQ(v6.port, "5000");
  EXPECT_EQ(v6.base_path, "/a/b");
}

TEST(HttpUrls, RefuseWhatCannotBeSpokenTo) {
  for (const char* url :
       {"ftp://x", "http://", "http://x:port", "http://x:", "http://a b", "http://x/\r\nEvil: 1"}) {
    EXPECT_THAT(test::error_text<ConfigError>([&] { parse_http_url(url, "MLFLOW_TRACKING_URI"); }),
                HasSubstr("is not the address of a server"))
        << url;
  }
  EXPECT_THAT(test::error_text<ConfigError>([] { parse_http_url("https://x", "here"); }),
              HasSubstr("wants an encrypted connection"));
}

TEST(HttpTexts, AreEncodedAndDecoded) {
  EXPECT_EQ(url_encoded("a b/c&é", UrlPart::kQuery), "a%20b%2Fc%26%C3%A9");
  EXPECT_EQ(url_encoded("a b/c", UrlPart::kPath), "a%20b/c");
  EXPECT_EQ(url_decoded("a%20b%2Fc%C3%A9%"), "a b/cé%");
  EXPECT_EQ(base64(""), "");
  EXPECT_EQ(base64("a"), "YQ==");
  EXPECT_EQ(base64("ab"), "YWI=");
  EXPECT_EQ(base64("abc"), "YWJj");
}

}  // namespace
}  // namespace accelerate::tracking
