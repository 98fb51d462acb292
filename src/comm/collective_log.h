// What this rank is doing, for the others to read when something goes wrong.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/events.h"

namespace accelerate::comm {

// The latest collective of a rank in a group. Ranks that run the same program number theirs alike.
struct CollectiveRecord {
  int64_t sequence = 0;  // 1 for the first, 0 before it
  // What is exchanged, and in brackets behind what the user called, where that is another thing:
  // "loader: next batch from rank 0 (broadcast from 0 Long[])".
  std::string operation = "nothing yet";
  bool finished = true;

  // "12 1 all_reduce float32[10]" and back; one line.
  std::string encode() const;
  static CollectiveRecord decode(const std::string& text);
};

// What a collective is called, to be completed by append().
inline Event operation_event(std::string_view name) {
  return Event(EventKind::kCollectiveBegin, name);
}

// The collectives of one group in the stream of events of this rank: numbers them, emits their
// begin and end, and reads from the board of the stream what it did last. Written by the thread
// that makes the collectives and those of a backend, read by any; takes no lock.
class CollectiveLog {
 public:
  explicit CollectiveLog(std::shared_ptr<EventStream> events);
  ~CollectiveLog();
  CollectiveLog(const CollectiveLog&) = delete;
  CollectiveLog& operator=(const CollectiveLog&) = delete;

  // Whether the board had room for it. If not, latest() knows nothing.
  bool is_shown() const { return latest_line_ != EventStream::kNoLine; }
  EventStream& events() const { return *events_; }
  uint16_t group() const { return group_; }

  // Starts the next collective, which may go on while others begin. `operation` has the text;
  // returned is the event with its number and the text that latest() will have.
  Event begin(Event operation);
  void end(int64_t sequence);
  CollectiveRecord latest() const;
  // The number of the oldest that has not ended; nothing if all have.
  std::optional<int64_t> oldest_running() const;

  // What the user called, around the collectives that it makes; of several inside each other the
  // first counts. See Activity.
  void enter(std::string_view activity);
  void leave();

  // Around each exchange that a backend has started for the latest collective: a line of the board,
  // by which any reader sees since when this rank waits, and for what. To be given back.
  int begin_exchange();
  void end_exchange(int line);

 private:
  // Those that run; more than these are a program that never waits, and the oldest are forgotten.
  static constexpr size_t kMostRunning = 64;

  const std::shared_ptr<EventStream> events_;
  const uint16_t group_;
  const int latest_line_;
  const int activity_line_;
  std::atomic<int64_t> sequence_{0};
  std::atomic<int> depth_{0};                                 // of activities
  std::array<std::atomic<int64_t>, kMostRunning> running_{};  // by number modulo its size; 0: none
};

// The exchange of one of `groups` that has been under way for the longest time; nothing while there
// is none.
std::optional<Event> oldest_wait(const EventStream& events, const std::vector<uint16_t>& groups);

}  // namespace accelerate::comm
