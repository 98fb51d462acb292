// The head of an HTTP request, read strictly: it may come from anybody.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace accelerate::monitor {

struct HttpRequest {
  bool is_head = false;                          // HEAD: the answer without its body
  std::string path{};                            // decoded; begins with /
  std::map<std::string, std::string> query{};    // decoded
  std::map<std::string, std::string> headers{};  // names in lower case
  bool keeps_open = true;

  std::string header(const std::string& name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? "" : found->second;
  }
  std::string parameter(const std::string& name) const {
    const auto found = query.find(name);
    return found == query.end() ? "" : found->second;
  }
  // Of the header Cookie; "" if there is none.
  std::string cookie(std::string_view name) const;
};

struct ParsedRequest {
  int refusal = 0;      // the status of the answer; 0: none
  size_t consumed = 0;  // bytes of the head; 0: it is not whole yet
  HttpRequest request{};
};

// Limits of what is read. A request beyond them is refused.
inline constexpr size_t kMostHeadBytes = 8192;
inline constexpr size_t kMostTargetBytes = 2048;
inline constexpr size_t kMostHeaders = 64;

// Reads one head from the front of `bytes`. GET and HEAD alone; no bodies, no continued lines, one
// Host. Never throws.
ParsedRequest parse_request(std::string_view bytes);

// %41 as A and + as a blank; nothing for a wrong escape, and for a control character.
std::optional<std::string> decoded_url(std::string_view text);

}  // namespace accelerate::monitor
