#include "base/notebook_channel.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>

#include "base/environment.h"
#include "base/json_quote.h"
#include "base/unique_fd.h"

namespace accelerate {
namespace {

namespace fs = std::filesystem;

std::string message_text_of(const std::map<std::string, std::string>& data, const std::string& id) {
  std::string json = R"({"id":)";
  append_json_text(json, id);
  json += R"(,"data":{)";
  const char* separator = "";
  for (const auto& [type, text] : data) {
    json += separator;
    append_json_text(json, type);
    json += ':';
    append_json_text(json, text);
    separator = ",";
  }
  return json + "}}\n";
}

// What is too large for one write to the pipe, whole among those of others, goes through a file,
// which the kernel removes.
class DisplayFile {
 public:
  DisplayFile(const fs::path& folder, const std::string& json) {
    static std::atomic<int> count = 0;
    path_ = folder / ("display_" + std::to_string(getpid()) + "_" +
                      std::to_string(count.fetch_add(1)) + ".json");
    std::ofstream out(path_, std::ios::binary);
    out << json;
    out.close();
    is_whole_ = !out.fail();
  }
  ~DisplayFile() {
    std::error_code not_there;
    if (!is_handed_over_) fs::remove(path_, not_there);
  }
  DisplayFile(const DisplayFile&) = delete;
  DisplayFile& operator=(const DisplayFile&) = delete;

  bool is_whole() const { return is_whole_; }
  void hand_over() { is_handed_over_ = true; }
  std::string message() const {
    std::string text = R"({"file":)";
    append_json_text(text, path_.string());
    return text + "}\n";
  }

 private:
  fs::path path_;
  bool is_whole_ = false;
  bool is_handed_over_ = false;
};

// Of this thread, while it writes to a pipe that may have lost its reader: EPIPE says so too.
class WithoutSigpipe {
 public:
  WithoutSigpipe() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    sigset_t waiting;
    sigpending(&waiting);
    waited_before_ = sigismember(&waiting, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~WithoutSigpipe() {
    const timespec at_once{};
    while (!waited_before_ && sigtimedwait(&pipe_, nullptr, &at_once) < 0 && errno == EINTR) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  WithoutSigpipe(const WithoutSigpipe&) = delete;
  WithoutSigpipe& operator=(const WithoutSigpipe&) = delete;

 private:
  sigset_t pipe_{};
  sigset_t before_{};
  bool waited_before_ = false;
};

using Clock = std::chrono::steady_clock;

// For a message of at most PIPE_BUF bytes, unless another process is quicker.
bool has_room(int channel, Clock::time_point until) {
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
    pollfd room{.fd = channel, .events = POLLOUT, .revents = 0};
    const int ready = poll(&room, 1, static_cast<int>(std::max<int64_t>(0, left)));
    if (ready < 0 && errno == EINTR) continue;
    return ready == 1 && (room.revents & (POLLERR | POLLHUP | POLLNVAL)) == 0;
  }
}

// Whole or not at all: at most PIPE_BUF bytes, to a pipe that does not block.
bool write_whole(int channel, const std::string& message, Clock::time_point until) {
  const WithoutSigpipe none;
  while (has_room(channel, until)) {
    const ssize_t written = write(channel, message.data(), message.size());
    if (written >= 0) return written == static_cast<ssize_t>(message.size());
    if (errno == EAGAIN && Clock::now() >= until) return false;
    if (errno != EAGAIN && errno != EINTR) return false;
  }
  return false;
}

}  // namespace

bool has_notebook_channel() {
  return !environment_variable(kNotebookChannelVariable).value_or("").empty();
}

bool show_in_notebook(const std::map<std::string, std::string>& data, const std::string& id,
                      std::chrono::milliseconds room_within) {
  const std::string path = environment_variable(kNotebookChannelVariable).value_or("");
  if (path.empty()) return false;
  // Does not wait for a reader: where there is none, the kernel has ended.
  const UniqueFd channel(open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC));
  if (channel.get() < 0) return false;
  const Clock::time_point until = Clock::now() + room_within;
  if (!has_room(channel.get(), until)) return false;
  std::string message = message_text_of(data, id);
  std::optional<DisplayFile> file;
  if (message.size() > PIPE_BUF) {
    file.emplace(fs::path(path).parent_path(), message);
    if (!file->is_whole()) return false;
    message = file->message();
  }
  // What the cell has printed so far stands above.
  std::fflush(stdout);
  const bool is_sent = write_whole(channel.get(), message, until);
  if (is_sent && file) file->hand_over();
  return is_sent;
}

}  // namespace accelerate
