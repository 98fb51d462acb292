// Both output streams of one worker, from the worker's descriptors to the launcher's.
#pragma once

#include <array>
#include <cstddef>
#include <deque>
#include <filesystem>
#include <string>

#include "launch/output/line_tail.h"
#include "launch/output/output_relay.h"
#include "launch/output/output_sink.h"
#include "launch/output/worker_channel.h"

namespace accelerate::launch {

// The launcher's own streams, by StreamKind.
using OutputSinks = std::array<OutputSink, 2>;

struct OutputOptions {
  int rank = 0;
  int num_processes = 1;
  bool prefix = false;
  std::array<bool, 2> shown{true, true};  // by StreamKind
  std::filesystem::path log_folder{};     // stdout.log and stderr.log are written here; "": none
};

// Opens the channels, relays what the worker writes and remembers its last lines. A stream whose
// sink is a terminal is a pseudo terminal for the worker, unless the prefix would spoil bars that
// are drawn on it. What goes to a file is not changed on its way. Stays where it is: the relays
// point into it. `sinks` outlive it.
class WorkerOutput {
 public:
  // Makes the folder of the log files. Throws ConfigError that names --log_dir if it cannot.
  WorkerOutput(const OutputOptions& options, OutputSinks& sinks);
  WorkerOutput(const WorkerOutput&) = delete;
  WorkerOutput& operator=(const WorkerOutput&) = delete;

  // What becomes the worker's stream. Close our copies once it has been started.
  int worker_fd(StreamKind kind) const { return channel(kind).write_end.get(); }
  void close_worker_fds();

  // Where the worker leaves the message of the error that ends it.
  int error_fd() const { return errors_.write_end.get(); }

  // What to poll for POLLIN, or -1 once the stream has ended.
  int fd(StreamKind kind) const { return channel(kind).read_end.get(); }

  // Takes what is there, one read, without blocking. A stream that ended is closed.
  void read(StreamKind kind);

  // The worker has ended: takes what it left in the channels and closes them. Processes that it
  // left behind may still hold the other ends; they are not waited for.
  void finish();

  // Nobody reads our output any more: the worker will be told by SIGPIPE, unless there is a file
  // that goes on taking it.
  void lose_reader(StreamKind kind) {
    if (!logs_[static_cast<size_t>(kind)]) close(kind);
  }

  void copy_terminal_size();
  std::deque<std::string> last_lines() const { return tail_.lines(); }
  std::string exception() const { return tail_.exception(); }
  // What the worker left there, fit to be printed; known after finish().
  const std::string& error() const { return error_; }

 private:
  WorkerChannel& channel(StreamKind kind) { return channels_[static_cast<size_t>(kind)]; }
  const WorkerChannel& channel(StreamKind kind) const {
    return channels_[static_cast<size_t>(kind)];
  }
  void close(StreamKind kind) { channel(kind).read_end.reset(); }
  // Bytes taken by one read; 0 if there are none now or the stream was closed.
  size_t read_once(StreamKind kind);
  // Appends to the log file; one that cannot be written (a full disk) is given up.
  void write_log(StreamKind kind, const char* bytes, size_t count);

  void take_error();

  OutputSinks& sinks_;
  LineTail tail_;
  WorkerChannel errors_ = open_pipe_channel();
  std::string error_;
  std::array<WorkerChannel, 2> channels_;
  std::array<OutputRelay, 2> relays_;
  std::array<UniqueFd, 2> logs_;
};

}  // namespace accelerate::launch
