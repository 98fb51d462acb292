#include "monitor/server/http_request.h"

#include <algorithm>
#include <cctype>
#include <utility>

namespace accelerate::monitor {
namespace {

constexpr std::string_view kEndOfLine = "\r\n";
constexpr std::string_view kEndOfHead = "\r\n\r\n";

bool is_token(std::string_view text) {
  constexpr std::string_view kMarks = "!#$%&'*+-.^_`|~";
  return !text.empty() && std::ranges::all_of(text, [&](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || kMarks.find(c) != kMarks.npos;
  });
}

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

std::string_view without_blanks(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char letter = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return letter >= 'a' && letter <= 'f' ? letter - 'a' + 10 : -1;
}

// The parts of each are returned as a status that refuses it, or 0.
int read_target(std::string_view target, HttpRequest& request) {
  if (target.size() > kMostTargetBytes) return 414;
  if (!target.starts_with('/')) return 400;
  const size_t mark = target.find('?');
  const auto path = decoded_url(target.substr(0, mark));
  if (!path) return 400;
  request.path = *path;
  std::string_view rest = mark == target.npos ? "" : target.substr(mark + 1);
  while (!rest.empty()) {
    const std::string_view pair = rest.substr(0, rest.find('&'));
    rest.remove_prefix(std::min(pair.size() + 1, rest.size()));
    const size_t equals = pair.find('=');
    const auto name = decoded_url(pair.substr(0, equals));
    const auto value = equals == pair.npos ? "" : decoded_url(pair.substr(equals + 1));
    if (!name || !value) return 400;
    request.query[*name] = *value;
  }
  return 0;
}

int read_request_line(std::string_view line, HttpRequest& request) {
  const size_t method_end = line.find(' ');
  const size_t target_end = line.rfind(' ');
  if (method_end == line.npos || target_end == method_end) return 400;
  const std::string_view method = line.substr(0, method_end);
  const std::string_view version = line.substr(target_end + 1);
  if (!is_token(method)) return 400;
  if (!version.starts_with("HTTP/")) return 400;
  if (version != "HTTP/1.1" && version != "HTTP/1.0") return 505;
  request.keeps_open = version == "HTTP/1.1";
  const std::string_view target = line.substr(method_end + 1, target_end - method_end - 1);
  if (std::ranges::any_of(target, [](char c) { return c == ' ' || is_control(c); })) return 400;
  if (method != "GET" && method != "HEAD") return 405;
  request.is_head = method == "HEAD";
  return read_target(target, request);
}

int read_header(std::string_view line, HttpRequest& request) {
  const size_t colon = line.find(':');
  if (colon == line.npos || !is_token(line.substr(0, colon))) return 400;
  const std::string_view value = without_blanks(line.substr(colon + 1));
  if (std::ranges::any_of(value, [](char c) { return is_control(c) && c != '\t'; })) return 400;
  const std::string name = lower(line.substr(0, colon));
  const bool is_first = request.headers.emplace(name, value).second;
  if (request.headers.size() > kMostHeaders) return 431;
  const bool must_be_one = name == "host" || name == "content-length";
  return is_first || !must_be_one ? 0 : 400;
}

// Nothing is taken from anybody, so a request with a body means something that there is not.
int check_headers(HttpRequest& request, bool is_newer) {
  if (is_newer && !request.headers.contains("host")) return 400;
  if (request.headers.contains("transfer-encoding")) return 413;
  const std::string length = request.header("content-length");
  if (!length.empty() && length != "0") return 413;
  const std::string connection = lower(request.header("connection"));
  if (connection.find("close") != connection.npos) request.keeps_open = false;
  return 0;
}

ParsedRequest refused(int status) { return {.refusal = status}; }

}  // namespace

std::string HttpRequest::cookie(std::string_view name) const {
  const std::string all = header("cookie");
  std::string_view rest = all;
  while (!rest.empty()) {
    const std::string_view pair = rest.substr(0, rest.find(';'));
    rest.remove_prefix(std::min(pair.size() + 1, rest.size()));
    const size_t equals = pair.find('=');
    if (equals == pair.npos || without_blanks(pair.substr(0, equals)) != name) continue;
    return std::string(without_blanks(pair.substr(equals + 1)));
  }
  return "";
}

std::optional<std::string> decoded_url(std::string_view text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '%') {
      if (i + 2 >= text.size()) return std::nullopt;
      const int high = digit_of(text[i + 1]);
      const int low = digit_of(text[i + 2]);
      if (high < 0 || low < 0) return std::nullopt;
      c = static_cast<char>(high * 16 + low);
      i += 2;
    } else if (c == '+') {
      c = ' ';
    }
    if (is_control(c)) return std::nullopt;
    result += c;
  }
  return result;
}

ParsedRequest parse_request(std::string_view bytes) {
  const size_t end = bytes.substr(0, kMostHeadBytes).find(kEndOfHead);
  if (end == bytes.npos) {
    // A line that ends in another way would keep us waiting for ever.
    const size_t newline = bytes.find('\n');
    const bool is_wrong = newline != bytes.npos && (newline == 0 || bytes[newline - 1] != '\r');
    if (is_wrong) return refused(400);
    return bytes.size() >= kMostHeadBytes ? refused(431) : ParsedRequest{};
  }
  ParsedRequest parsed{.consumed = end + kEndOfHead.size()};
  std::string_view head = bytes.substr(0, end);
  const std::string_view first = head.substr(0, head.find(kEndOfLine));
  parsed.refusal = read_request_line(first, parsed.request);
  const bool is_newer = parsed.request.keeps_open;
  head.remove_prefix(std::min(first.size() + kEndOfLine.size(), head.size()));
  while (parsed.refusal == 0 && !head.empty()) {
    const std::string_view line = head.substr(0, head.find(kEndOfLine));
    head.remove_prefix(std::min(line.size() + kEndOfLine.size(), head.size()));
    parsed.refusal = read_header(line, parsed.request);
  }
  if (parsed.refusal == 0) parsed.refusal = check_headers(parsed.request, is_newer);
  return parsed;
}

}  // namespace accelerate::monitor
