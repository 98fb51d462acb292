// What the launcher of a machine records of a run: its workers, their lines and their ends.
#pragma once

#include <chrono>
#include <deque>
#include <map>
#include <string>

#include "launch/plan/launch_outcome.h"
#include "launch/plan/machine_plan.h"
#include "run_record/record_writer.h"

namespace accelerate::launch {

// Writes one file into the folder of the run. A disk that is full ends the record and nothing else.
// Used by one thread.
class JobRecord {
 public:
  static constexpr std::chrono::milliseconds kInterval{1'000};  // between looks at lines

  // Throws ConfigError, naming the folder, if the file cannot be made.
  explicit JobRecord(const MachinePlan& plan);

  void begin_attempt(int restarts);
  void worker_started(int rank, pid_t pid);
  // Its newest lines, if they are others than before. A worker that writes all the time is recorded
  // less and less often, so that a file stays small beside any log.
  void show_lines(int rank, const std::deque<std::string>& lines);
  void worker_ended(const WorkerEnd& end);
  void flush() { writer_.flush(); }

 private:
  struct Shown {
    std::deque<std::string> lines{};
    size_t bytes = 0;  // recorded so far
    std::chrono::steady_clock::time_point next{};
  };
  void write_lines(int rank, const std::deque<std::string>& lines);

  run_record::RecordWriter writer_;
  std::map<int, Shown> shown_;
};

}  // namespace accelerate::launch
