// The thread that gives what was logged to the trackers of a run.
#pragma once

#include <semaphore.h>
#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "accelerate/log.h"
#include "accelerate/tracker.h"
#include "tracking/record_queue.h"

namespace accelerate::tracking {

// What happened to the records of a run.
struct WriterReport {
  uint64_t written = 0;  // records that all their trackers have taken
  uint64_t dropped = 0;  // records that found the queue full
  uint64_t failed = 0;   // records that a tracker could not write
};

// Owns the trackers of a run. Any thread may push records; none of these calls waits for the
// writer, but flush() and stop().
class TrackerWriter {
 public:
  using Say = std::function<void(LogLevel, std::string_view)>;

  // Calls start() of each tracker on this thread, which may throw; from then on only the writer
  // calls them. `say` is called from the writer.
  TrackerWriter(std::vector<std::shared_ptr<GeneralTracker>> trackers, const TrackerRun& run,
                const TrackerInitOptions& options, Say say);
  // Stops, if nobody has.
  ~TrackerWriter();
  TrackerWriter(const TrackerWriter&) = delete;
  TrackerWriter& operator=(const TrackerWriter&) = delete;

  const std::vector<std::shared_ptr<GeneralTracker>>& trackers() const { return trackers_; }

  // Has `fill` fill a record. False, and the record is counted, if it was dropped.
  template <class Fill>
  bool push(Fill&& fill) {
    if (!queue_.push([&](Record& record) {
          record.at.time = std::chrono::system_clock::now();
          fill(record);
        })) {
      count_drop();
      return false;
    }
    // Many come: the writer need not wait for its interval.
    if (queue_.size() == queue_.capacity() / 2) wake();
    return true;
  }
  // The same with what takes `bytes` of the room for attachments.
  template <class Fill>
  bool push_attachment(size_t bytes, Fill&& fill) {
    if (attachment_bytes_.fetch_add(bytes) + bytes > options_.attachment_bytes) {
      attachment_bytes_.fetch_sub(bytes);
      count_drop();
      return false;
    }
    bool taken = false;
    try {
      taken = push([&](Record& record) {
        fill(record);
        record.reserved_bytes = bytes;
      });
    } catch (...) {
      attachment_bytes_.fetch_sub(bytes);
      throw;
    }
    if (!taken) attachment_bytes_.fetch_sub(bytes);
    return taken;
  }

  // Returns when everything that was pushed before is with the system, or after `most`. False if
  // time ran out.
  bool flush(std::chrono::milliseconds most);
  // The same from a signal handler. What a device still computes is not waited for.
  bool flush_in_handler(std::chrono::milliseconds most) noexcept;
  // Writes what is left, and ends the trackers. Values that a device has not computed within
  // `most` are dropped. Nothing may be pushed any more.
  void stop(std::chrono::milliseconds most);

  WriterReport report() const;

 private:
  using Clock = std::chrono::steady_clock;

  void run();
  void wake() noexcept { ::sem_post(&wake_); }
  void wait_for_work();
  void count_drop() noexcept { dropped_.fetch_add(1, std::memory_order_relaxed); }
  // Writes the records that are ready, up to one that is not. What a device has not computed at
  // `deadline` is dropped; without one it is left for later.
  void drain(const std::optional<Clock::time_point>& deadline);
  void write(Record& record);
  void give(GeneralTracker& tracker, size_t index, const Record& record,
            const Attachment* attachment);
  void give_attachment(GeneralTracker& tracker, size_t index, const TrackedStep& at,
                       const Attachment& attachment);
  void flush_trackers(bool before_end);
  // Runs `call`; says its error, unless it is the one that was said last. Whether it went well.
  bool attempt(size_t index, const std::function<void()>& call);
  void say_unsupported(size_t index, std::string_view kind);
  void say_drops(bool at_end);
  void answer_flushes();

  const std::vector<std::shared_ptr<GeneralTracker>> trackers_;
  const TrackerInitOptions options_;
  const Say say_;
  const pid_t process_;
  RecordQueue queue_;
  sem_t wake_{};
  std::atomic<size_t> attachment_bytes_{0};
  std::atomic<uint64_t> written_{0};
  std::atomic<uint64_t> dropped_{0};
  std::atomic<uint64_t> failed_{0};
  std::atomic<bool> stopping_{false};
  std::atomic<bool> ended_{false};
  // How many records must have been written for the latest flush(); what is with the system.
  std::atomic<uint64_t> flush_asked_{0};
  std::atomic<uint64_t> flush_done_{0};
  std::atomic<bool> hasty_{false};  // the process is about to end
  std::atomic<uint64_t> hasty_done_{0};
  std::chrono::milliseconds stop_patience_{0};  // set before stopping_
  std::mutex mutex_;
  std::condition_variable flushed_;

  // Of the writer alone.
  struct TrackerNotes {
    std::string last_error;
    std::vector<std::string> unsupported;  // kinds that were said to be of no use to it
  };
  std::vector<TrackerNotes> notes_;
  uint64_t drops_said_ = 0;
  Clock::time_point drops_said_at_{};

  std::thread thread_;
};

}  // namespace accelerate::tracking
