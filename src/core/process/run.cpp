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

#include "accelerate/process_state.h"
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

// With the rank where there are several, also of an error that the user's own code has thrown.
std::string text_of_uncaught(const std::exception& error) {
  if (const auto* of_torch = dynamic_cast<const c10::Error*>(&error)) {
    return of_torch->what_without_backtrace();
  }
  const auto* own = dynamic_cast<const Error*>(&error);
  if (own == nullptr || own->rank()) return error.what();
  try {
    const RankEnvironment ranks = RankEnvironment::read(environment_variable);
    if (ranks.world_size == 1) return error.what();
    Error stamped = *own;
    stamped.set_rank(ranks.rank, ranks.world_size);
    return stamped.what();
  } catch (const Error&) {  // an environment that makes no sense has its own error
    return error.what();
  }
}

}  // namespace

int detail::report_uncaught(const std::exception& error) noexcept {
  try {
    std::string text = text_of_uncaught(error);
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
