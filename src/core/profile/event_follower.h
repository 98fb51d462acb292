// The events of a rank while it is profiled.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/events.h"
#include "core/profile/step_statistics.h"

namespace accelerate {

// Something with a begin and an end. Times are nanoseconds of the steady clock.
struct EventTimes {
  std::string name{};
  uint32_t thread = 0;  // as events have it
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
};

struct ExchangeTimes {
  EventTimes times{};
  uint16_t group = 0;
  uint32_t number = 0;
  uint32_t operation = 0;
};

// What happened in a recording.
struct RecordedEvents {
  std::vector<EventTimes> spans{};
  std::vector<ExchangeTimes> exchanges{};
  uint32_t own_thread = 0;  // of Profile::step()
};

// Follows the stream on a thread of its own, so that nothing is missed where a step has more events
// than the stream holds. Whoever emits pays nothing for it.
class EventFollower {
 public:
  // Follows from here on. `first_step`: see StepStatistics.
  EventFollower(std::shared_ptr<const EventStream> events, int64_t first_step);
  ~EventFollower();
  EventFollower(const EventFollower&) = delete;
  EventFollower& operator=(const EventFollower&) = delete;

  // From here on spans are kept for a trace.
  void begin_recording();
  // What has ended since then.
  RecordedEvents end_recording();
  // With all events up to now.
  StepTimes step_times(int rank);
  // Events that passed unseen.
  uint64_t lost();

 private:
  void run();
  int drain();  // under the mutex; the number of events
  void take(const Event& event);
  void end_span(const Event& event);

  std::mutex mutex_;  // of all below
  std::condition_variable woken_;
  EventStream::Reader reader_;
  StepStatistics statistics_;
  uint64_t lost_ = 0;
  bool records_ = false;
  bool stops_ = false;
  RecordedEvents recorded_;
  std::map<std::pair<uint32_t, std::string>, std::vector<int64_t>> open_spans_;
  std::map<std::pair<uint16_t, uint32_t>, ExchangeTimes> open_exchanges_;
  std::thread thread_;  // last: it uses the rest
};

}  // namespace accelerate
