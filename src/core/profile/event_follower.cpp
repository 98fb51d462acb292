#include "core/profile/event_follower.h"

#include <algorithm>
#include <chrono>

namespace accelerate {
namespace {

using std::chrono::milliseconds;

// Between looks at the events: often while many come.
constexpr milliseconds kBriefPause{1};
constexpr milliseconds kLongPause{20};
constexpr int kManyAtOnce = 200;
constexpr int kFewAtOnce = 50;

}  // namespace

EventFollower::EventFollower(std::shared_ptr<const EventStream> events, int64_t first_step)
    : reader_(std::move(events)), statistics_(first_step), thread_([this] { run(); }) {}

EventFollower::~EventFollower() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  woken_.notify_one();
  thread_.join();
}

void EventFollower::run() {
  milliseconds pause = kBriefPause;
  std::unique_lock lock(mutex_);
  while (!stops_) {
    const int count = drain();
    if (count > kManyAtOnce) pause = kBriefPause;
    if (count < kFewAtOnce) pause = std::min(kLongPause, pause * 2);
    woken_.wait_for(lock, pause, [this] { return stops_; });
  }
}

int EventFollower::drain() {
  int count = 0;
  for (Event event; reader_.next(event); ++count) take(event);
  if (reader_.lost() != lost_) {
    lost_ = reader_.lost();
    statistics_.forget_open();
    open_spans_.clear();
    open_exchanges_.clear();
  }
  return count;
}

void EventFollower::take(const Event& event) {
  statistics_.take(event);
  if (event.text().starts_with(kStepMark)) {  // libtorch has it in its trace
    recorded_.own_thread = event.thread;
    return;
  }
  if (!records_) return;
  switch (event.kind) {
    case EventKind::kSpanBegin:
    case EventKind::kCheckpointBegin: {
      auto& begins = open_spans_[{event.thread, std::string(event.text())}];
      if (event.text() == kOptimizerSpan) begins.clear();  // a step that is left out has no end
      begins.push_back(event.time_ns);
      break;
    }
    case EventKind::kSpanEnd:
    case EventKind::kCheckpointEnd:
      end_span(event);
      break;
    case EventKind::kWaitBegin:
      if (event.exchange == 0) break;
      open_exchanges_[{event.group, event.exchange}] = {.times = {.name = std::string(event.text()),
                                                                  .thread = event.thread,
                                                                  .begin_ns = event.time_ns},
                                                        .group = event.group,
                                                        .number = event.exchange,
                                                        .operation = event.operation};
      break;
    case EventKind::kWaitEnd: {
      const auto open = open_exchanges_.find({event.group, event.exchange});
      if (open == open_exchanges_.end()) break;
      open->second.times.end_ns = event.time_ns;
      recorded_.exchanges.push_back(std::move(open->second));
      open_exchanges_.erase(open);
      break;
    }
    default:
      break;
  }
}

void EventFollower::end_span(const Event& event) {
  const auto open = open_spans_.find({event.thread, std::string(event.text())});
  if (open == open_spans_.end()) return;
  recorded_.spans.push_back({.name = open->first.second,
                             .thread = event.thread,
                             .begin_ns = open->second.back(),
                             .end_ns = event.time_ns});
  open->second.pop_back();
  if (open->second.empty()) open_spans_.erase(open);
}

void EventFollower::begin_recording() {
  const std::lock_guard lock(mutex_);
  drain();
  records_ = true;
  recorded_.spans.clear();
  recorded_.exchanges.clear();
  open_spans_.clear();
  open_exchanges_.clear();
}

RecordedEvents EventFollower::end_recording() {
  const std::lock_guard lock(mutex_);
  drain();
  records_ = false;
  RecordedEvents recorded = recorded_;
  recorded_.spans.clear();
  recorded_.exchanges.clear();
  return recorded;
}

uint64_t EventFollower::lost() {
  const std::lock_guard lock(mutex_);
  return lost_;
}

StepTimes EventFollower::step_times(int rank) {
  const std::lock_guard lock(mutex_);
  drain();
  return statistics_.times(rank);
}

}  // namespace accelerate
