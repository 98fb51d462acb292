// What this rank does, recorded for the page of the run.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>

#include "base/events.h"
#include "run_record/record_writer.h"

namespace accelerate {

// Follows the events of a rank on a thread of its own and writes steps, what lasts, and checkpoints
// into the folder of the run. Whoever emits events pays nothing for it.
class RunRecorder {
 public:
  // Writes the file of the rank that `begin` names. Throws ConfigError if it cannot be made.
  RunRecorder(const std::filesystem::path& folder, run_record::Begin begin,
              std::shared_ptr<const EventStream> events);
  // Writes what was emitted until now, and the end.
  ~RunRecorder();
  RunRecorder(const RunRecorder&) = delete;
  RunRecorder& operator=(const RunRecorder&) = delete;

  // For what users log. Writes to it are taken up within a quarter of a second.
  run_record::RecordWriter& writer() { return writer_; }

 private:
  void run();

  run_record::RecordWriter writer_;
  const std::shared_ptr<const EventStream> events_;
  EventStream::Reader reader_;
  std::mutex mutex_;
  std::condition_variable woken_;
  bool stops_ = false;
  std::thread thread_;  // last: it uses the rest
};

// The recorder of this rank where the environment names a folder for it; else null. A folder that
// cannot be written throws ConfigError.
std::unique_ptr<RunRecorder> recorder_of_environment(uint64_t rank, uint64_t world_size,
                                                     std::shared_ptr<const EventStream> events);

}  // namespace accelerate
