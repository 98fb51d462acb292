#include "comm/watch/collective_log.h"

#include <algorithm>
#include <sstream>
#include <utility>

#include "base/fnv1a.h"

namespace accelerate::comm {

std::string CollectiveRecord::encode() const {
  std::string text = std::to_string(sequence) + (finished ? " 1 " : " 0 ") + std::to_string(kind) +
                     ' ' + operation;
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

CollectiveRecord CollectiveRecord::decode(const std::string& text) {
  CollectiveRecord record;
  std::istringstream in(text);
  in >> record.sequence >> record.finished >> record.kind;
  in.get();  // the blank before the operation
  std::getline(in, record.operation);
  return record;
}

uint32_t operation_number(std::string_view what, int64_t bytes) {
  const uint64_t hash = Fnv1a().add(what).add(&bytes, sizeof(bytes)).value();
  return std::max(static_cast<uint32_t>(hash ^ hash >> 32), uint32_t{1});
}

uint32_t exchange_number(std::string_view name, int64_t bytes, int64_t root) {
  constexpr int64_t kMostRanks = int64_t{1} << 20;  // more than there are in a job
  return operation_number(name, bytes * kMostRanks + root);
}

CollectiveLog::CollectiveLog(std::shared_ptr<EventStream> events, Board board)
    : events_(std::move(events)),
      group_(events_->open_group()),
      latest_line_(board == Board::kTwoLines ? events_->open_line() : EventStream::kNoLine),
      activity_line_(board == Board::kTwoLines ? events_->open_line() : EventStream::kNoLine) {}

CollectiveLog::~CollectiveLog() {
  events_->close_line(latest_line_);
  events_->close_line(activity_line_);
}

void CollectiveLog::tell_name(std::string_view name) {
  Event opened(EventKind::kGroupOpened, name);
  opened.group = group_;
  events_->emit(opened);
}

Event CollectiveLog::with_activity(EventKind kind, std::string_view text) const {
  Event event(kind);
  Event activity;
  if (depth_.load(std::memory_order_relaxed) > 0 && events_->read_line(activity_line_, activity) &&
      activity.text() != text) {
    event.append(activity.text()).append(" (").append(text).append(")");
  } else {
    event.append(text);
  }
  event.group = group_;
  return event;
}

Event CollectiveLog::begin(Event operation, EndsWith ends_with) {
  Event begun = with_activity(EventKind::kCollectiveBegin, operation.text());
  begun.operation = operation_number(operation.text());
  begun.number = sequence_.fetch_add(1, std::memory_order_relaxed) + 1;
  running_[static_cast<size_t>(begun.number) % kMostRunning].store(
      running_word(begun.number, ends_with), std::memory_order_release);
  events_->show(latest_line_, begun);
  events_->emit(begun);
  return begun;
}

void CollectiveLog::clear_running(int64_t number, EndsWith ends_with) {
  int64_t own = running_word(number, ends_with);
  running_[static_cast<size_t>(number) % kMostRunning].compare_exchange_strong(
      own, 0, std::memory_order_release, std::memory_order_relaxed);
}

void CollectiveLog::end(int64_t sequence) {
  clear_running(sequence, EndsWith::kEnd);
  clear_running(sequence, EndsWith::kExchange);
  if (sequence == sequence_.load(std::memory_order_relaxed)) {
    events_->show_as(latest_line_, EventKind::kCollectiveEnd);
  }
  Event ended(EventKind::kCollectiveEnd);
  ended.group = group_;
  ended.number = sequence;
  events_->emit(ended);
}

CollectiveRecord CollectiveLog::latest() const {
  Event event;
  if (!events_->read_line(latest_line_, event)) return {};
  return {.sequence = event.number,
          .operation = std::string(event.text()),
          .finished = event.kind == EventKind::kCollectiveEnd &&
                      on_device_.load(std::memory_order_acquire) == 0,
          .kind = event.operation,
          .begun_ns = event.time_ns};
}

std::optional<int64_t> CollectiveLog::oldest_running() const {
  std::optional<int64_t> oldest;
  if (const int64_t number = on_device_.load(std::memory_order_acquire)) oldest = number;
  for (const auto& running : running_) {
    const int64_t number = running.load(std::memory_order_acquire) / 2;
    if (number != 0 && number < oldest.value_or(number + 1)) oldest = number;
  }
  return oldest;
}

void CollectiveLog::enter(std::string_view activity) {
  if (depth_.fetch_add(1, std::memory_order_relaxed) > 0) return;
  if (activity_line_ == EventStream::kNoLine) return;  // leave() would not know what has ended
  Event span(EventKind::kSpanBegin, activity);
  span.group = group_;
  events_->show(activity_line_, span);
  events_->emit(span);
}

void CollectiveLog::leave() {
  if (depth_.fetch_sub(1, std::memory_order_relaxed) > 1) return;
  Event span;
  if (!events_->read_line(activity_line_, span)) return;
  events_->clear_line(activity_line_);
  span.kind = EventKind::kSpanEnd;
  events_->emit(span);
}

Event CollectiveLog::exchange_event(uint32_t operation, uint32_t number) const {
  Event wait;
  if (!events_->read_line(latest_line_, wait)) {
    wait = Event();  // whoever had the line before may have left something
    wait.number = sequence_.load(std::memory_order_relaxed);
  }
  wait.kind = EventKind::kWaitBegin;
  wait.group = group_;
  wait.exchange = number;
  wait.operation = operation;
  return wait;
}

CollectiveLog::Wait CollectiveLog::begin_exchange(uint32_t operation) {
  return show_wait(
      exchange_event(operation, exchanges_.fetch_add(1, std::memory_order_relaxed) + 1));
}

Event CollectiveLog::exchange_on_device(uint32_t operation, int64_t number) {
  const auto of_device = static_cast<uint32_t>(number) & ~kExchangeOfDevice;
  device_exchanges_.store(of_device, std::memory_order_relaxed);
  return exchange_event(operation, of_device | kExchangeOfDevice);
}

CollectiveLog::Wait CollectiveLog::begin_wait(std::string_view what) {
  return show_wait(with_activity(EventKind::kWaitBegin, what));
}

CollectiveLog::Wait CollectiveLog::show_wait(const Event& wait) {
  const int line = events_->open_line();
  events_->show(line, wait);
  events_->emit(wait);
  return {.line = line, .number = wait.number, .exchange = wait.exchange};
}

void CollectiveLog::end_wait(const Wait& wait) {
  events_->close_line(wait.line);
  clear_running(wait.number, EndsWith::kExchange);
  Event ended(EventKind::kWaitEnd);
  ended.group = group_;
  ended.number = wait.number;
  ended.exchange = wait.exchange;
  events_->emit(ended);
}

std::optional<Event> oldest_wait(const EventStream& events, const std::vector<uint16_t>& groups) {
  for (const Event& event : events.board()) {
    if (event.kind != EventKind::kWaitBegin) continue;
    if (std::find(groups.begin(), groups.end(), event.group) != groups.end()) return event;
  }
  return std::nullopt;
}

}  // namespace accelerate::comm
