#include "accelerate/run.h"

#include <c10/util/Exception.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <string>

#include "base/bar_screen.h"
#include "base/environment.h"
#include "base/error_channel.h"

namespace accelerate {
namespace {

// The descriptor that the launcher reads; -1 if there is none.
int launcher_descriptor() {
  const std::string text = environment_variable(kErrorChannelVariable).value_or("");
  int fd = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), fd);
  if (error != std::errc() || end != text.data() + text.size() || fd <= STDERR_FILENO) return -1;
  struct stat status {};
  return fstat(fd, &status) == 0 && S_ISFIFO(status.st_mode) ? fd : -1;
}

// What fits into a pipe at once goes there whole or not at all, and without waiting.
bool tell_launcher(const std::string& text) {
  const int fd = launcher_descriptor();
  if (fd < 0) return false;
  pollfd room{.fd = fd, .events = POLLOUT, .revents = 0};
  if (poll(&room, 1, 0) != 1 || room.revents != POLLOUT) return false;
  const std::string piece = text.substr(0, PIPE_BUF);
  return write(fd, piece.data(), piece.size()) == static_cast<ssize_t>(piece.size());
}

}  // namespace

int detail::report_uncaught(const std::exception& error) noexcept {
  try {
    const auto* of_torch = dynamic_cast<const c10::Error*>(&error);
    std::string text = of_torch != nullptr ? of_torch->what_without_backtrace() : error.what();
    while (text.ends_with('\n')) text.pop_back();
    text += '\n';
    std::fflush(stdout);
    if (!tell_launcher(text)) write_above_bars(stderr, text);
  } catch (const std::exception&) {  // no memory for words
    std::fputs(error.what(), stderr);
  }
  return dynamic_cast<const Error*>(&error) != nullptr ? kErrorExitCode : 1;
}

}  // namespace accelerate
