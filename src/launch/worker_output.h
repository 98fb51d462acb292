// Both output streams of one worker, from the worker's descriptors to the launcher's.
#pragma once

#include <array>
#include <cstddef>
#include <deque>
#include <string>

#include "launch/line_tail.h"
#include "launch/output_relay.h"
#include "launch/output_sink.h"
#include "launch/worker_channel.h"

namespace accelerate::launch {

// The launcher's own streams, by StreamKind.
using OutputSinks = std::array<OutputSink, 2>;

struct OutputOptions {
  int rank = 0;
  int num_processes = 1;
  bool prefix = false;
};

// Opens the channels, relays what the worker writes and remembers its last lines. A stream whose
// sink is a terminal is a pseudo terminal for the worker, unless the prefix would spoil bars that
// are drawn on it. Stays where it is: the relays point into it. `sinks` outlive it.
class WorkerOutput {
 public:
  WorkerOutput(const OutputOptions& options, OutputSinks& sinks);
  WorkerOutput(const WorkerOutput&) = delete;
  WorkerOutput& operator=(const WorkerOutput&) = delete;

  // What becomes the worker's stream. Close our copies once it has been started.
  int worker_fd(StreamKind kind) const { return channel(kind).write_end.get(); }
  void close_worker_fds();

  // What to poll for POLLIN, or -1 once the stream has ended.
  int fd(StreamKind kind) const { return channel(kind).read_end.get(); }

  // Takes what is there, one read, without blocking. A stream that ended is closed.
  void read(StreamKind kind);

  // The worker has ended: takes what it left in the channels and closes them. Processes that it
  // left behind may still hold the other ends; they are not waited for.
  void finish();

  // Nobody reads our output any more: the worker will be told by SIGPIPE.
  void close(StreamKind kind) { channel(kind).read_end.reset(); }

  void copy_terminal_size();
  std::deque<std::string> last_lines() const { return tail_.lines(); }

 private:
  WorkerChannel& channel(StreamKind kind) { return channels_[static_cast<size_t>(kind)]; }
  const WorkerChannel& channel(StreamKind kind) const {
    return channels_[static_cast<size_t>(kind)];
  }
  // Bytes taken by one read; 0 if there are none now or the stream was closed.
  size_t read_once(StreamKind kind);

  OutputSinks& sinks_;
  LineTail tail_;
  std::array<WorkerChannel, 2> channels_;
  std::array<OutputRelay, 2> relays_;
};

}  // namespace accelerate::launch
