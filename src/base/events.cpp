#include "base/events.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <chrono>
#include <cstring>
#include <exception>
#include <functional>
#include <thread>
#include <type_traits>
#include <utility>

namespace accelerate {
namespace {

constexpr std::string_view kCut = "...";
// Kind, length, group, thread; number; time; exchange, operation: the words before the text.
constexpr size_t kHeadWords = 4;

void stamp(Event& event) noexcept {
  event.time_ns = std::chrono::steady_clock::now().time_since_epoch().count();
  event.thread = static_cast<uint32_t>(std::hash<std::thread::id>{}(std::this_thread::get_id()));
}

}  // namespace

static_assert(std::is_trivially_copyable_v<Event>);
static_assert(offsetof(Event, characters) == kHeadWords * sizeof(uint64_t));

Event& Event::append(std::string_view more) noexcept {
  const size_t taken = std::min(more.size(), kMostText - length);
  std::copy_n(more.data(), taken, characters.data() + length);  // an empty text may have no memory
  length = static_cast<uint8_t>(length + taken);
  if (taken < more.size()) {
    std::memcpy(characters.data() + kMostText - kCut.size(), kCut.data(), kCut.size());
  }
  return *this;
}

Event& Event::append(int64_t value) noexcept {
  std::array<char, 20> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  return append(std::string_view(digits.data(), static_cast<size_t>(end - digits.data())));
}

// No more of the text than there is.
void EventStream::Cell::store(const Event& event) noexcept {
  const size_t count = kHeadWords + (event.length + sizeof(uint64_t) - 1) / sizeof(uint64_t);
  const char* bytes = reinterpret_cast<const char*>(&event);
  for (size_t i = 0; i < count; ++i) {
    uint64_t word = 0;
    std::memcpy(&word, bytes + i * sizeof(word), sizeof(word));
    words[i].store(word, std::memory_order_release);
  }
}

void EventStream::Cell::load(Event& event) const noexcept {
  char* bytes = reinterpret_cast<char*>(&event);
  size_t count = kHeadWords;
  for (size_t i = 0; i < count; ++i) {
    const uint64_t word = words[i].load(std::memory_order_acquire);
    std::memcpy(bytes + i * sizeof(word), &word, sizeof(word));
    if (i > 0) continue;
    // What is read while it is written may be of any length.
    event.length = std::min<uint8_t>(event.length, Event::kMostText);
    count += (event.length + sizeof(word) - 1) / sizeof(word);
  }
}

void EventStream::emit(const Event& event) noexcept {
  Event stamped = event;
  stamp(stamped);
  const uint64_t ticket = head_.fetch_add(1, std::memory_order_acq_rel);
  Slot& slot = ring_[ticket % kCapacity];
  const uint64_t writing = 2 * ticket + 1;
  uint64_t before = slot.version.load(std::memory_order_relaxed);
  const bool is_free = before % 2 == 0 && before < writing;
  if (!is_free ||
      !slot.version.compare_exchange_strong(before, writing, std::memory_order_acq_rel)) {
    slot.dropped.store(ticket + 1, std::memory_order_release);
    return;
  }
  slot.store(stamped);
  slot.version.store(writing + 1, std::memory_order_release);
}

int EventStream::open_line() noexcept {
  for (size_t word = 0; word < open_lines_.size(); ++word) {
    uint64_t taken = open_lines_[word].load(std::memory_order_relaxed);
    while (taken != ~uint64_t{0}) {
      const int bit = std::countr_one(taken);
      if (!open_lines_[word].compare_exchange_weak(taken, taken | uint64_t{1} << bit,
                                                   std::memory_order_acq_rel)) {
        continue;
      }
      return static_cast<int>(word) * 64 + bit;
    }
  }
  return kNoLine;
}

void EventStream::show(int line, const Event& event) noexcept {
  if (line == kNoLine) return;
  Event stamped = event;
  stamp(stamped);
  Cell& cell = lines_[static_cast<size_t>(line)];
  const uint64_t before = cell.version.load(std::memory_order_relaxed);
  cell.version.store(before + 1, std::memory_order_relaxed);
  cell.store(stamped);
  cell.version.store(before + 2, std::memory_order_release);
}

void EventStream::show_as(int line, EventKind kind) noexcept {
  if (line == kNoLine) return;
  Cell& cell = lines_[static_cast<size_t>(line)];
  uint64_t word = cell.words[0].load(std::memory_order_relaxed);
  if (word == 0) return;  // nothing is shown
  static_assert(offsetof(Event, kind) == 0);
  std::memcpy(&word, &kind, sizeof(kind));
  cell.words[0].store(word, std::memory_order_release);  // one word is never half of another
}

void EventStream::clear_line(int line) noexcept {
  if (line == kNoLine) return;
  Cell& cell = lines_[static_cast<size_t>(line)];
  const uint64_t before = cell.version.load(std::memory_order_relaxed);
  cell.version.store(before + 1, std::memory_order_relaxed);
  cell.words[0].store(0, std::memory_order_release);
  cell.version.store(before + 2, std::memory_order_release);
}

void EventStream::close_line(int line) noexcept {
  if (line == kNoLine) return;
  clear_line(line);
  const auto place = static_cast<size_t>(line);
  open_lines_[place / 64].fetch_and(~(uint64_t{1} << place % 64), std::memory_order_acq_rel);
}

bool EventStream::read_line(int line, Event& event) const noexcept {
  if (line == kNoLine) return false;
  const Cell& cell = lines_[static_cast<size_t>(line)];
  while (true) {
    const uint64_t before = cell.version.load(std::memory_order_acquire);
    if (before % 2 == 0) {
      cell.load(event);
      if (cell.version.load(std::memory_order_relaxed) == before) break;
    }
    std::this_thread::yield();  // a writer needs a moment, unless it lost its core in the middle
  }
  return event.kind != EventKind{};
}

std::vector<Event> EventStream::board() const {
  std::vector<Event> shown;
  for (size_t word = 0; word < open_lines_.size(); ++word) {
    uint64_t open = open_lines_[word].load(std::memory_order_acquire);
    for (; open != 0; open &= open - 1) {
      Event event;
      const int line = static_cast<int>(word) * 64 + std::countr_zero(open);
      if (read_line(line, event)) shown.push_back(event);
    }
  }
  std::sort(shown.begin(), shown.end(),
            [](const Event& a, const Event& b) { return a.time_ns < b.time_ns; });
  return shown;
}

std::vector<Event> EventStream::last_events(size_t most) const {
  const uint64_t head = head_.load(std::memory_order_acquire);
  const uint64_t count = std::min<uint64_t>({head, most, kCapacity});
  std::vector<Event> last;
  last.reserve(count);
  for (uint64_t ticket = head - count; ticket < head; ++ticket) {
    const Slot& slot = ring_[ticket % kCapacity];
    const uint64_t written = 2 * ticket + 2;
    Event event;
    if (slot.version.load(std::memory_order_acquire) != written) continue;
    slot.load(event);
    if (slot.version.load(std::memory_order_relaxed) == written) last.push_back(event);
  }
  return last;
}

EventStream::Reader::Reader(std::shared_ptr<const EventStream> stream)
    : stream_(std::move(stream)), next_(stream_->head_.load(std::memory_order_acquire)) {}

bool EventStream::Reader::next(Event& event) {
  while (true) {
    const uint64_t head = stream_->head_.load(std::memory_order_acquire);
    if (next_ == head) return false;
    if (head - next_ > kCapacity) {
      const uint64_t passed = head - kCapacity - next_;
      lost_ += passed;
      next_ += passed;
    }
    const Slot& slot = stream_->ring_[next_ % kCapacity];
    const uint64_t written = 2 * next_ + 2;
    const uint64_t version = slot.version.load(std::memory_order_acquire);
    if (version == written) {
      slot.load(event);
      if (slot.version.load(std::memory_order_relaxed) == written) {
        ++next_;
        return true;
      }
    } else if (version < written && slot.dropped.load(std::memory_order_acquire) <= next_) {
      return false;  // its writer has the ticket and has not come to write, or is at it
    }
    ++next_;
    ++lost_;
  }
}

namespace {

// The kinds of an end follow those of their begin.
EventKind end_of(EventKind begin) {
  return static_cast<EventKind>(static_cast<uint8_t>(begin) + 1);
}

}  // namespace

EventSpan::EventSpan(std::shared_ptr<EventStream> stream, EventKind begin, std::string_view text,
                     int64_t number)
    : stream_(std::move(stream)),
      line_(stream_->open_line()),
      exceptions_at_begin_(std::uncaught_exceptions()),
      event_(begin, text) {
  event_.number = number;
  stream_->show(line_, event_);
  stream_->emit(event_);
}

EventSpan::~EventSpan() {
  stream_->close_line(line_);
  const bool failed = std::uncaught_exceptions() > exceptions_at_begin_;
  event_.kind = end_of(event_.kind);
  event_.number = static_cast<int64_t>(failed ? EventOutcome::kFailed : EventOutcome::kWell);
  stream_->emit(event_);
}

}  // namespace accelerate
