#include "comm/collective_log.h"

#include <algorithm>
#include <sstream>
#include <utility>

namespace accelerate::comm {

std::string CollectiveRecord::encode() const {
  std::string text = std::to_string(sequence) + (finished ? " 1 " : " 0 ") + operation;
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

CollectiveRecord CollectiveRecord::decode(const std::string& text) {
  CollectiveRecord record;
  std::istringstream in(text);
  in >> record.sequence >> record.finished;
  in.get();  // the blank before the operation
  std::getline(in, record.operation);
  return record;
}

CollectiveLog::CollectiveLog(std::shared_ptr<EventStream> events)
    : events_(std::move(events)),
      group_(events_->open_group()),
      latest_line_(events_->open_line()),
      activity_line_(events_->open_line()) {}

CollectiveLog::~CollectiveLog() {
  events_->close_line(latest_line_);
  events_->close_line(activity_line_);
}

Event CollectiveLog::begin(Event operation) {
  Event begun(EventKind::kCollectiveBegin);
  Event activity;
  if (depth_.load(std::memory_order_relaxed) > 0 && events_->read_line(activity_line_, activity) &&
      activity.text() != operation.text()) {
    begun.append(activity.text()).append(" (").append(operation.text()).append(")");
  } else {
    begun.append(operation.text());
  }
  begun.group = group_;
  begun.number = sequence_.fetch_add(1, std::memory_order_relaxed) + 1;
  running_[static_cast<size_t>(begun.number) % kMostRunning].store(begun.number,
                                                                   std::memory_order_release);
  events_->show(latest_line_, begun);
  events_->emit(begun);
  return begun;
}

void CollectiveLog::end(int64_t sequence) {
  int64_t own = sequence;
  running_[static_cast<size_t>(sequence) % kMostRunning].compare_exchange_strong(
      own, 0, std::memory_order_release, std::memory_order_relaxed);
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
          .finished = event.kind == EventKind::kCollectiveEnd};
}

std::optional<int64_t> CollectiveLog::oldest_running() const {
  std::optional<int64_t> oldest;
  for (const auto& running : running_) {
    const int64_t number = running.load(std::memory_order_acquire);
    if (number != 0 && number < oldest.value_or(number + 1)) oldest = number;
  }
  return oldest;
}

void CollectiveLog::enter(std::string_view activity) {
  if (depth_.fetch_add(1, std::memory_order_relaxed) > 0) return;
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

int CollectiveLog::begin_exchange() {
  Event wait;
  events_->read_line(latest_line_, wait);
  wait.kind = EventKind::kWaitBegin;
  wait.group = group_;
  const int line = events_->open_line();
  events_->show(line, wait);
  events_->emit(wait);
  return line;
}

void CollectiveLog::end_exchange(int line) {
  events_->close_line(line);
  Event ended(EventKind::kWaitEnd);
  ended.group = group_;
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
