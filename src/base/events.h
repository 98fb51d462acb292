// What a rank does: one stream of typed events, and a board that shows what is going on right now.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace accelerate {

enum class EventKind : uint8_t {
  kStep = 1,         // a step of an optimizer is done; number: which
  kSpanBegin,        // something that the user called
  kSpanEnd,          //
  kWaitBegin,        // this rank waits for others; number: of the collective, 0 outside of them
  kWaitEnd,          //
  kCollectiveBegin,  // number: which of its group
  kCollectiveEnd,    //
  kCheckpointBegin,  // text: what is saved or loaded
  kCheckpointEnd,    // with an outcome
  kGroupOpened,      // text: the name of the group, the same on all its ranks; numbers are not
};

// How something ended. By an exception: it failed.
enum class EventOutcome : int64_t { kWell = 0, kFailed = 1 };

// One thing that happened. Holds no pointers, so that it can be copied word by word.
struct Event {
  static constexpr size_t kMostText = 224;

  EventKind kind = EventKind::kStep;
  uint8_t length = 0;   // of the text
  uint16_t group = 0;   // of ranks; 0 for all of them, or for none in particular
  uint32_t thread = 0;  // tells threads apart; set when it is emitted or shown
  int64_t number = 0;
  int64_t time_ns = 0;  // of std::chrono::steady_clock; set when it is emitted or shown
  // Of a wait for an exchange of data: which of its group, the same on all ranks; 0 for no such.
  uint32_t exchange = 0;
  // Of an exchange or a collective: differs where ranks cannot be in the same one; 0 for others.
  uint32_t operation = 0;
  std::array<char, kMostText> characters{};

  Event() = default;
  explicit Event(EventKind of_kind, std::string_view with_text = {}) : kind(of_kind) {
    append(with_text);
  }

  std::string_view text() const { return {characters.data(), length}; }
  // Of an end that has one: in place of the number.
  EventOutcome outcome() const { return static_cast<EventOutcome>(number); }
  // What does not fit is cut off, and the text then ends with "...".
  Event& append(std::string_view more) noexcept;
  Event& append(int64_t value) noexcept;
};

// Any thread may emit, show and read at any time. Writing takes no lock, allocates nothing and
// never waits for a reader. One stream for all that belongs to a job on this rank; there is no
// global one.
class EventStream {
 public:
  static constexpr size_t kCapacity = 1024;  // events that a reader may fall behind
  static constexpr int kLines = 128;         // of the board
  static constexpr int kNoLine = -1;

  // Appends an event with the time and thread of now, in place of the oldest. `event` may be lost
  // if another thread is held up while it writes and kCapacity others pass by; readers count it.
  void emit(const Event& event) noexcept;

  // The board: lines that show the latest of something for as long as they are open. A line is
  // written by one thread at a time. kNoLine if all are taken; the other calls accept it and do
  // nothing.
  int open_line() noexcept;
  void show(int line, const Event& event) noexcept;  // with the time and thread of now
  void show_as(int line, EventKind kind) noexcept;   // what is there, as of another kind
  void clear_line(int line) noexcept;
  void close_line(int line) noexcept;
  // What an open line shows; false if that is nothing. Waits for a thread that is just writing it.
  bool read_line(int line, Event& event) const noexcept;
  // All open lines that show something, the one that was written first at the front.
  std::vector<Event> board() const;

  // Up to `most` of the last events, the oldest first; without those that are just being written.
  std::vector<Event> last_events(size_t most) const;

  // Numbers for groups of ranks: 0 is the first.
  uint16_t open_group() noexcept { return next_group_.fetch_add(1, std::memory_order_relaxed); }

  // Reads the events that are emitted from its construction on. Each reader sees all of them. One
  // thread at a time.
  class Reader {
   public:
    explicit Reader(std::shared_ptr<const EventStream> stream);
    // False: there is no further event now.
    bool next(Event& event);
    // How many events passed unseen because this reader came too late.
    uint64_t lost() const { return lost_; }

   private:
    std::shared_ptr<const EventStream> stream_;
    uint64_t next_;
    uint64_t lost_ = 0;
  };

 private:
  // An event that can be read while it is being written: `version` is odd then, and another one
  // afterwards. Words are stored with release and loaded with acquire, so whoever has read a word
  // of a newer event also sees its version.
  struct Cell {
    static constexpr size_t kWords = 32;
    std::atomic<uint64_t> version{0};
    std::array<std::atomic<uint64_t>, kWords> words{};

    void store(const Event& event) noexcept;
    void load(Event& event) const noexcept;
  };
  static_assert(sizeof(Event) == Cell::kWords * sizeof(uint64_t));

  struct Slot : Cell {
    std::atomic<uint64_t> dropped{0};  // the last ticket, plus one, that found it taken
  };

  std::atomic<uint64_t> head_{0};  // tickets given out
  std::array<Slot, kCapacity> ring_;
  std::array<std::atomic<uint64_t>, kLines / 64> open_lines_{};
  std::array<Cell, kLines> lines_;
  std::atomic<uint16_t> next_group_{0};
};

// While it lives the board shows `text` as of a kind that begins; its begin and its end are
// emitted, the end with its outcome: kFailed if an exception destroys it. One thread.
class [[nodiscard]] EventSpan {
 public:
  // `number` is that of the event that begins.
  EventSpan(std::shared_ptr<EventStream> stream, EventKind begin, std::string_view text,
            int64_t number = 0);
  ~EventSpan();
  EventSpan(const EventSpan&) = delete;
  EventSpan& operator=(const EventSpan&) = delete;

 private:
  const std::shared_ptr<EventStream> stream_;
  const int line_;
  const int exceptions_at_begin_;
  Event event_;
};

}  // namespace accelerate
