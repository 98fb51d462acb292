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
  // Differs where two ranks are not in the same collective, whatever the user called.
  uint32_t kind = 0;
  int64_t begun_ns = 0;  // of std::chrono::steady_clock on this rank; not encoded

  // "12 1 17 all_reduce float32[10]" and back; one line.
  std::string encode() const;
  static CollectiveRecord decode(const std::string& text);
};

// Numbers for `what` is done to `bytes` bytes: unlike ones for unlike operations, of which ranks
// that wait for each other must have the same. Not 0.
uint32_t operation_number(std::string_view what, int64_t bytes = 0);
// The same for an exchange of `bytes` bytes with `root`.
uint32_t exchange_number(std::string_view name, int64_t bytes, int64_t root);

// Marks Event::exchange of exchanges that a device counts; the host has numbers of its own.
inline constexpr uint32_t kExchangeOfDevice = uint32_t{1} << 31;

// What a collective is called, to be completed by append().
inline Event operation_event(std::string_view name) {
  return Event(EventKind::kCollectiveBegin, name);
}

// The collectives of one group in the stream of events of this rank: numbers them, emits their
// begin and end, and reads from the board of the stream what it did last. Written by the thread
// that makes the collectives and those of a backend, read by any; takes no lock.
class CollectiveLog {
 public:
  enum class Board { kTwoLines, kNone };
  // What one rank does alone needs no lines of the board: nobody asks for it.
  explicit CollectiveLog(std::shared_ptr<EventStream> events, Board board = Board::kTwoLines);
  ~CollectiveLog();
  CollectiveLog(const CollectiveLog&) = delete;
  CollectiveLog& operator=(const CollectiveLog&) = delete;

  // Whether the board had room for it. If not, latest() knows nothing.
  bool is_shown() const {
    return latest_line_ != EventStream::kNoLine && activity_line_ != EventStream::kNoLine;
  }
  EventStream& events() const { return *events_; }
  uint16_t group() const { return group_; }

  // Says in the stream what the group is called, by which its events are found on other ranks.
  void tell_name(std::string_view name);

  enum class EndsWith { kEnd, kExchange };
  // Starts the next collective, which may go on while others begin. `operation` has the text;
  // returned is the event with its number and the text that latest() will have. One that ends with
  // its exchange counts as running no longer than that, though end() may come much later.
  Event begin(Event operation, EndsWith ends_with = EndsWith::kEnd);
  void end(int64_t sequence);
  CollectiveRecord latest() const;
  // The number of the oldest that has not ended; nothing if all have.
  std::optional<int64_t> oldest_running() const;
  // A device still works on what the collective `number` began, whether or not that has ended; 0:
  // on none. Then it counts as running.
  void set_on_device(int64_t number) { on_device_.store(number, std::memory_order_release); }
  // One that ends with its exchange has come to that, by what somebody who is no backend has seen.
  void exchange_has_ended(int64_t sequence) { clear_running(sequence, EndsWith::kExchange); }

  // What the user called, around the collectives that it makes; of several inside each other the
  // first counts. See Activity.
  void enter(std::string_view activity);
  void leave();

  // Around each exchange that a backend has started for the latest collective: a line of the board,
  // by which any reader sees since when this rank waits, and for what. To be given back.
  // `operation` is what operation_number() makes of the exchange itself: a collective may be called
  // otherwise on other ranks and consist of several.
  struct Wait {
    int line = EventStream::kNoLine;
    int64_t number = 0;     // of the collective; 0: of none
    uint32_t exchange = 0;  // 0: of none
  };
  Wait begin_exchange(uint32_t operation = 0);
  // From here on exchanges of a device are told of too, on all ranks of the group.
  void follow_device() { follows_device_.store(true, std::memory_order_relaxed); }
  bool follows_device() const { return follows_device_.load(std::memory_order_relaxed); }

  // The same for an exchange that a device works on after its call has returned: what it is, to be
  // shown by show_exchange() where it takes long. `number` is that of the device.
  Event exchange_on_device(uint32_t operation, int64_t number);
  Wait show_exchange(const Event& exchange) { return show_wait(exchange); }
  // How many exchanges have begun so far, of backends and of a device.
  uint32_t exchanges_of_host() const { return exchanges_.load(std::memory_order_relaxed); }
  uint32_t exchanges_of_device() const { return device_exchanges_.load(std::memory_order_relaxed); }
  // The same around a wait for other ranks that is no exchange.
  Wait begin_wait(std::string_view what);
  void end_wait(const Wait& wait);

 private:
  static int64_t running_word(int64_t number, EndsWith ends_with) {
    return 2 * number + (ends_with == EndsWith::kExchange ? 1 : 0);
  }
  void clear_running(int64_t number, EndsWith ends_with);
  // `text` behind what the user called, where that is another thing.
  Event with_activity(EventKind kind, std::string_view text) const;
  Wait show_wait(const Event& wait);
  // An exchange of the latest collective.
  Event exchange_event(uint32_t operation, uint32_t number) const;

  // Those that run; more than these are a program that never waits, and the oldest are forgotten.
  static constexpr size_t kMostRunning = 64;

  const std::shared_ptr<EventStream> events_;
  const uint16_t group_;
  const int latest_line_;
  const int activity_line_;
  std::atomic<int64_t> sequence_{0};
  std::atomic<int64_t> on_device_{0};
  std::atomic<uint32_t> exchanges_{0};
  std::atomic<uint32_t> device_exchanges_{0};  // number of the latest
  std::atomic<bool> follows_device_{false};
  std::atomic<int> depth_{0};                                 // of activities
  std::array<std::atomic<int64_t>, kMostRunning> running_{};  // words, by number; 0: none
};

// The wait for one of `groups` that has been under way for the longest time; nothing while there is
// none.
std::optional<Event> oldest_wait(const EventStream& events, const std::vector<uint16_t>& groups);

}  // namespace accelerate::comm
