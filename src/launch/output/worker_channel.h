// The way from one output stream of a worker to the launcher: a pipe or a pseudo terminal.
#pragma once

#include "base/unique_fd.h"

namespace accelerate::launch {

struct WorkerChannel {
  UniqueFd read_end;   // ours; reads do not block
  UniqueFd write_end;  // becomes the stream of the worker; we close it once the worker runs
  bool is_terminal = false;
};

// A pipe. Throws CommError if the process has no descriptors left.
WorkerChannel open_pipe_channel();

// A pseudo terminal as wide as the terminal `like`, which changes no byte on the way: the worker
// writes line by line and draws progress bars as if it ran in front of the user. A pipe where the
// machine has no pseudo terminals.
WorkerChannel open_terminal_channel(int like);

// Copies the size of the terminal `like` to that of `channel`; nothing to do for a pipe.
void copy_terminal_size(int like, const WorkerChannel& channel);

}  // namespace accelerate::launch
