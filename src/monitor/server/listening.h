// Where the page is served, and who may look at it.
#pragma once

#include <string>

#include "base/unique_fd.h"

namespace accelerate::monitor {

inline constexpr const char* kLoopback = "127.0.0.1";
inline constexpr int kUsualPort = 8642;
inline constexpr const char* kTokenVariable = "ACCELERATE_MONITOR_TOKEN";

struct PageAddress {
  std::string host = kLoopback;
  int port = kUsualPort;
  bool is_port_given = false;  // else any other will do where it is taken
};

// Of "", "true", "8080", "0.0.0.0:8080", "[::]:8080" or "node1". Throws ConfigError that names
// `where` for another text.
PageAddress parse_page_address(const std::string& text, const std::string& where);

struct OpenPage {
  UniqueFd socket{};
  std::string token{};  // "": none is needed, who is on this machine may look
  std::string url{};    // with the token
};

// Listens at `address`. Anywhere but on loopback a token is needed: that of kTokenVariable, else
// one that is made up. Throws ConfigError that names `where` if that cannot be.
OpenPage open_page(const PageAddress& address, const std::string& where);

}  // namespace accelerate::monitor
