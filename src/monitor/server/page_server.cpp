#include "monitor/server/page_server.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "base/library_version.h"
#include "monitor/page/page_assets.h"
#include "monitor/server/view_json.h"

namespace accelerate::monitor {
namespace {

constexpr const char* kCookie = "accelerate_monitor";
constexpr const char* kJson = "application/json; charset=utf-8";
constexpr size_t kMostRuns = 8;  // beside each other

Reply plain(int status, const std::string& text) { return {.status = status, .body = text + "\n"}; }

// In a time that does not tell how much of it was right.
bool is_same_secret(const std::string& one, const std::string& other) {
  if (one.size() != other.size()) return false;
  unsigned difference = 0;
  for (size_t i = 0; i < one.size(); ++i) {
    difference |= static_cast<unsigned char>(one[i]) ^ static_cast<unsigned char>(other[i]);
  }
  return difference == 0;
}

// Without the port.
std::string host_of(const HttpRequest& request) {
  const std::string host = request.header("host");
  if (host.starts_with('[')) return host.substr(0, host.find(']') + 1);
  return host.substr(0, host.find(':'));
}

bool names_this_machine(const std::string& host) {
  return host.empty() || host == "localhost" || host.ends_with(".localhost") ||
         host == "127.0.0.1" || host == "[::1]";
}

enum class Entrance { kOpen, kOpenByAddress, kNoToken, kForeignHost };

Entrance entrance_of(const HttpRequest& request, const PageAccess& access) {
  if (access.token.empty()) {
    return names_this_machine(host_of(request)) ? Entrance::kOpen : Entrance::kForeignHost;
  }
  if (is_same_secret(request.parameter("token"), access.token)) return Entrance::kOpenByAddress;
  const bool has_cookie = is_same_secret(request.cookie(kCookie), access.token);
  const bool has_header = is_same_secret(request.header("authorization"), "Bearer " + access.token);
  return has_cookie || has_header ? Entrance::kOpen : Entrance::kNoToken;
}

std::vector<std::string> words_of(const std::string& list) {
  std::vector<std::string> words;
  size_t begin = 0;
  while (begin <= list.size() && words.size() < kMostRuns) {
    const size_t end = std::min(list.find(',', begin), list.size());
    if (end > begin) words.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

// Those of the request that there are; of a request that names none the first run.
std::vector<std::string> runs_of(const HttpRequest& request, RunLibrary& runs) {
  std::vector<std::string> names;
  for (const std::string& name : words_of(request.parameter("runs"))) {
    if (runs.find(name) != nullptr) names.push_back(name);
  }
  if (names.empty() && request.parameter("runs").empty() && !runs.first().empty()) {
    names.push_back(runs.first());
  }
  return names;
}

Reply state_reply(const HttpRequest& request, RunLibrary& runs) {
  const std::vector<std::string> names = runs_of(request, runs);
  if (names.empty()) return plain(404, "no such run");
  runs.poll();
  std::string body = "[";
  for (const std::string& name : names) {
    Told nothing;
    RunFolder* run = runs.find(name);
    if (run == nullptr) continue;
    body += (body.size() > 1 ? "," : "") + run_json(*run, nothing);
  }
  return {.type = kJson, .body = body + "]"};
}

// Server-sent events: one a run each time there is a push. Who comes back gets all of it anew.
Reply events_reply(const HttpRequest& request, RunLibrary& runs) {
  struct Followed {
    std::string name;
    Told told{};
  };
  auto followed = std::make_shared<std::vector<Followed>>();
  for (const std::string& name : runs_of(request, runs)) followed->push_back({.name = name});
  if (followed->empty()) return plain(404, "no such run");
  return {.type = "text/event-stream",
          .headers = "X-Accel-Buffering: no\r\n",
          .body = "retry: 2000\n\n",
          .next = [followed, &runs] {
            std::string text;
            for (Followed& each : *followed) {
              RunFolder* run = runs.find(each.name);
              if (run != nullptr) text += "data: " + run_json(*run, each.told) + "\n\n";
            }
            return text;
          }};
}

Reply asset_reply(const HttpRequest& request) {
  const PageAsset* asset = find_asset(request.path);
  if (asset == nullptr) return plain(404, "nothing is here");
  return {.type = std::string(asset->type), .body = std::string(asset->content)};
}

Reply answer_admitted(const HttpRequest& request, RunLibrary& runs) {
  if (request.path == "/api/runs") {
    return {.type = kJson, .body = names_json(runs.names(), runs.first(), library_version())};
  }
  if (request.path == "/api/state") return state_reply(request, runs);
  if (request.path == "/events") return events_reply(request, runs);
  return asset_reply(request);
}

}  // namespace

Reply answer_page_request(const HttpRequest& request, const PageAccess& access, RunLibrary& runs) {
  const Entrance entrance = entrance_of(request, access);
  if (entrance == Entrance::kNoToken) {
    return plain(401,
                 "This page needs the token that accelerate has printed: open the address "
                 "with ?token=... that it showed.");
  }
  if (entrance == Entrance::kForeignHost) {
    return plain(403,
                 "This page is for this machine: open it as localhost or 127.0.0.1. For others "
                 "start it with an address, such as --monitor=0.0.0.0:8642.");
  }
  Reply reply = answer_admitted(request, runs);
  // What follows comes with the cookie, and the token leaves the line of the address.
  if (entrance == Entrance::kOpenByAddress) {
    reply.headers += std::string("Set-Cookie: ") + kCookie + "=" + access.token +
                     "; Path=/; HttpOnly; SameSite=Strict\r\n";
    if (request.path == "/") {
      reply.status = 302;
      reply.headers += "Location: /\r\n";
    }
  }
  return reply;
}

PageServer::PageServer(const std::filesystem::path& path, UniqueFd listening, PageAccess access)
    : runs_(path),
      access_(std::move(access)),
      server_(std::move(listening), [this](const HttpRequest& request) {
        return answer_page_request(request, access_, runs_);
      }) {}

void PageServer::serve(std::chrono::milliseconds timeout) {
  server_.serve(timeout);
  const auto now = std::chrono::steady_clock::now();
  if (now < next_push_) return;
  next_push_ = now + kInterval;
  if (server_.connections() == 0) return;  // nobody looks
  runs_.poll();
  server_.push();
}

void PageServer::say_goodbye() {
  runs_.poll();
  server_.push();
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  while (!server_.is_idle() && std::chrono::steady_clock::now() < give_up) {
    server_.serve(std::chrono::milliseconds(20));
  }
}

}  // namespace accelerate::monitor
