#include "launch/output/worker_channel.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "accelerate/errors.h"

namespace accelerate::launch {

WorkerChannel open_pipe_channel() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    throw CommError({.what = "cannot open a pipe for the output of a worker: " +
                             std::string(std::strerror(errno)),
                     .hint = "raise the limit on open files (ulimit -n)"});
  }
  WorkerChannel channel{.read_end = UniqueFd(ends[0]), .write_end = UniqueFd(ends[1])};
  fcntl(channel.read_end.get(), F_SETFL, O_NONBLOCK);
  return channel;
}

WorkerChannel open_terminal_channel(int like) {
  WorkerChannel channel;
  channel.read_end = UniqueFd(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  char name[128];
  if (!channel.read_end || grantpt(channel.read_end.get()) != 0 ||
      unlockpt(channel.read_end.get()) != 0 ||
      ptsname_r(channel.read_end.get(), name, sizeof name) != 0) {
    return open_pipe_channel();
  }
  channel.write_end = UniqueFd(open(name, O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (!channel.write_end) return open_pipe_channel();
  termios settings{};
  tcgetattr(channel.write_end.get(), &settings);
  cfmakeraw(&settings);
  tcsetattr(channel.write_end.get(), TCSANOW, &settings);
  fcntl(channel.read_end.get(), F_SETFL, O_RDWR | O_NONBLOCK);
  channel.is_terminal = true;
  copy_terminal_size(like, channel);
  return channel;
}

void copy_terminal_size(int like, const WorkerChannel& channel) {
  winsize size{};
  if (!channel.is_terminal || ioctl(like, TIOCGWINSZ, &size) != 0) return;
  ioctl(channel.read_end.get(), TIOCSWINSZ, &size);
}

}  // namespace accelerate::launch
