#include "launch/output/worker_output.h"

#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "accelerate/errors.h"
#include "base/word_list.h"

namespace accelerate::launch {
namespace {

// What a worker can have in flight when it ends: the largest pipe that Linux allows by default.
constexpr size_t kMaxInFlightBytes = size_t{1} << 20;

WorkerChannel open_channel(const OutputOptions& options, StreamKind kind, const OutputSink& sink) {
  // Behind the prefix only the output stream is a terminal, for the sake of line buffering: bars
  // are drawn on the error stream.
  const bool suits = !options.prefix || kind == StreamKind::kOut;
  const bool shown = options.shown[static_cast<size_t>(kind)];
  if (shown && suits && isatty(sink.fd())) return open_terminal_channel(sink.fd());
  return open_pipe_channel();
}

RelayMode relay_mode(const OutputOptions& options, StreamKind kind, const OutputSink& sink) {
  if (!options.shown[static_cast<size_t>(kind)]) return RelayMode::kHidden;
  if (options.prefix) return RelayMode::kPrefixed;
  if (options.num_processes == 1) return RelayMode::kImmediate;
  // In a terminal rank 0 draws bars and asks questions; in a file whole lines matter more.
  return options.rank == 0 && isatty(sink.fd()) ? RelayMode::kImmediate : RelayMode::kWholeLines;
}

bool goes_to_one_terminal(const OutputOptions& options, const OutputSinks& sinks) {
  return options.log_folder.empty() && is_same_terminal(sinks[0].fd(), sinks[1].fd()) &&
         relay_mode(options, StreamKind::kOut, sinks[0]) == RelayMode::kImmediate &&
         relay_mode(options, StreamKind::kErr, sinks[1]) == RelayMode::kImmediate;
}

UniqueFd open_log(const std::filesystem::path& folder, const char* name) {
  if (folder.empty()) return UniqueFd();
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  const std::filesystem::path path = folder / name;
  UniqueFd file(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (file) return file;
  const std::string reason = error ? error.message() : std::strerror(errno);
  throw ConfigError({.what = "cannot write " + path.string() + ": " + reason,
                     .where = "--log_dir",
                     .hint = "name a writable folder on a disk with free space"});
}

}  // namespace

WorkerOutput::WorkerOutput(const OutputOptions& options, OutputSinks& sinks)
    : sinks_(sinks),
      channels_{open_channel(options, StreamKind::kOut, sinks[0]),
                open_channel(options, StreamKind::kErr, sinks[1])},
      relays_{OutputRelay(relay_mode(options, StreamKind::kOut, sinks[0]), options.rank,
                          StreamKind::kOut, sinks[0], tail_),
              OutputRelay(relay_mode(options, StreamKind::kErr, sinks[1]), options.rank,
                          StreamKind::kErr, sinks[1], tail_)},
      logs_{open_log(options.log_folder, "stdout.log"),
            open_log(options.log_folder, "stderr.log")} {
  if (!goes_to_one_terminal(options, sinks)) return;
  // What a worker draws with one stream and prints with the other arrives in its order only if both
  // are the same.
  WorkerChannel& errors = channel(StreamKind::kErr);
  errors.write_end = UniqueFd(fcntl(worker_fd(StreamKind::kOut), F_DUPFD_CLOEXEC, 3));
  errors.read_end.reset();
  errors.is_terminal = false;
}

void WorkerOutput::close_worker_fds() {
  for (WorkerChannel& channel : channels_) channel.write_end.reset();
  errors_.write_end.reset();
}

size_t WorkerOutput::read_once(StreamKind kind) {
  char buffer[64 * 1024];
  const ssize_t count = ::read(fd(kind), buffer, sizeof buffer);
  if (count > 0) {
    write_log(kind, buffer, static_cast<size_t>(count));
    relays_[static_cast<size_t>(kind)].consume({buffer, static_cast<size_t>(count)});
    return static_cast<size_t>(count);
  }
  // A pseudo terminal says EIO where a pipe says 0.
  if (count == 0 || (errno != EAGAIN && errno != EINTR)) close(kind);
  return 0;
}

void WorkerOutput::write_log(StreamKind kind, const char* bytes, size_t count) {
  UniqueFd& log = logs_[static_cast<size_t>(kind)];
  while (log && count > 0) {
    const ssize_t written = ::write(log.get(), bytes, count);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      log.reset();
      return;
    }
    bytes += written;
    count -= static_cast<size_t>(written);
  }
}

void WorkerOutput::read(StreamKind kind) { read_once(kind); }

void WorkerOutput::finish() {
  for (const StreamKind kind : {StreamKind::kOut, StreamKind::kErr}) {
    size_t taken = 0;
    while (fd(kind) >= 0 && taken < kMaxInFlightBytes) {
      const size_t count = read_once(kind);
      if (count == 0) break;
      taken += count;
    }
    relays_[static_cast<size_t>(kind)].finish();
    close(kind);
  }
  take_error();
}

// Files get it too: there each rank stands for itself.
void WorkerOutput::take_error() {
  char buffer[PIPE_BUF];
  const ssize_t count = ::read(errors_.read_end.get(), buffer, sizeof buffer);
  errors_.read_end.reset();
  if (count <= 0) return;
  write_log(StreamKind::kErr, buffer, static_cast<size_t>(count));
  LineTail lines;
  lines.append(StreamKind::kErr, {buffer, static_cast<size_t>(count)});
  error_ = joined(lines.lines(), "\n");
}

void WorkerOutput::copy_terminal_size() {
  for (size_t i = 0; i < channels_.size(); ++i)
    launch::copy_terminal_size(sinks_[i].fd(), channels_[i]);
}

}  // namespace accelerate::launch
