// Requests to a server over plain HTTP.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace accelerate::tracking {

struct HttpServer {
  std::string host{};
  std::string port{};
  std::string base_path{};  // before the path of each request: "" or "/mlflow"
  // Beside those that every request has, for example Authorization.
  std::vector<std::pair<std::string, std::string>> headers{};
};

// "http://host:port/path", "http://user:password@host". Throws ConfigError that names `where` for
// anything else.
HttpServer parse_http_url(std::string_view url, const std::string& where);

struct HttpAnswer {
  int status = 0;
  std::string body{};
};

// Sends one request and reads its answer, whatever its status. Throws TrackerError if there is no
// answer within `timeout`.
HttpAnswer http_request(const HttpServer& server, std::string_view method, std::string_view path,
                        std::string_view content_type, std::string_view body,
                        std::chrono::milliseconds timeout);

// A value in a query or a path: what is not a letter, a digit or one of "-._~" as %XX. Slashes of a
// path stay.
enum class UrlPart { kQuery, kPath };
std::string url_encoded(std::string_view text, UrlPart part);

// A text whose %XX stand for bytes again.
std::string url_decoded(std::string_view text);

std::string base64(std::string_view bytes);

}  // namespace accelerate::tracking
