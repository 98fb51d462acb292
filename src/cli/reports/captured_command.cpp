#include "cli/reports/captured_command.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/unique_fd.h"

namespace accelerate::cli {
namespace {

using Clock = std::chrono::steady_clock;

// Everything from `fd` up to its end, or nothing if that does not come in time.
std::optional<std::string> read_until(int fd, Clock::time_point deadline) {
  std::string text;
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    pollfd ready{fd, POLLIN, 0};
    if (left.count() <= 0 || poll(&ready, 1, static_cast<int>(left.count())) <= 0) {
      return std::nullopt;
    }
    char buffer[4096];
    const ssize_t count = read(fd, buffer, sizeof buffer);
    if (count < 0) return std::nullopt;
    if (count == 0) return text;
    text.append(buffer, static_cast<size_t>(count));
  }
}

}  // namespace

std::optional<std::string> captured_command(const std::vector<std::string>& command,
                                            std::chrono::milliseconds deadline) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return std::nullopt;
  const UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);

  std::vector<char*> argv;
  for (const std::string& argument : command) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, write_end.get(), 1);
  posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
  pid_t pid = -1;
  const int error = posix_spawn(&pid, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return std::nullopt;
  write_end.reset();

  std::optional<std::string> text = read_until(read_end.get(), Clock::now() + deadline);
  if (!text) kill(pid, SIGKILL);
  int status = 0;
  waitpid(pid, &status, 0);
  if (!text || !WIFEXITED(status) || WEXITSTATUS(status) != 0) return std::nullopt;
  while (!text->empty() && text->back() == '\n') text->pop_back();
  return text;
}

}  // namespace accelerate::cli
