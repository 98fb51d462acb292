// How a job ended.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <deque>
#include <optional>
#include <string>
#include <vector>

namespace accelerate::launch {

enum class WorkerFate {
  kSucceeded,  // exited with status 0
  kFailed,     // ended on its own with another status or by a signal
  kStopped,    // ended because the launcher asked it to
  kKilled,     // did not end when asked, and was killed after the grace period
};

struct WorkerEnd {
  int rank = 0;
  pid_t pid = 0;
  int wait_status = 0;                 // as waitpid gives it
  std::chrono::milliseconds after{0};  // since the job began
  WorkerFate fate = WorkerFate::kSucceeded;
  std::deque<std::string> last_lines{};  // of both streams, oldest first
};

struct LaunchOutcome {
  std::vector<WorkerEnd> ends{};       // one for each worker, in the order in which they ended
  std::optional<int> stop_signal{};    // the launcher was told to stop by this signal
  std::chrono::milliseconds grace{0};  // how long the others were given

  // The first worker that failed, or nothing.
  const WorkerEnd* first_failure() const;

  // 0 if every worker succeeded. After a failure the status of the first that failed, or 128 plus
  // its signal; after a stop signal 128 plus that, unless all workers ended well all the same.
  int exit_code() const;
};

}  // namespace accelerate::launch
