#include "core/process/run_recorder.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>

#include "accelerate/log.h"
#include "base/environment.h"
#include "base/host_name.h"
#include "base/library_version.h"
#include "base/user_folders.h"
#include "core/process/step_aggregator.h"

namespace accelerate {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// Between looks at the events: often while many come, so that none is missed.
constexpr milliseconds kShortestPause{2};
constexpr milliseconds kLongestPause{50};
constexpr int kManyEvents = 256;
constexpr int kFewEvents = 64;
constexpr milliseconds kFlushInterval{250};
constexpr milliseconds kBoardInterval{500};
// What takes longer is worth a line of its own.
constexpr int64_t kLastingNs = 1'000'000'000;

Clock::time_point time_of_event(int64_t time_ns) {
  return Clock::time_point(std::chrono::nanoseconds(time_ns));
}

// The part of a recorder that its thread alone uses.
class EventRecorder {
 public:
  EventRecorder(run_record::RecordWriter& writer, const EventStream& events,
                EventStream::Reader& reader)
      : writer_(writer), events_(events), reader_(reader) {}

  // The number of events that were taken.
  int drain() {
    Event event;
    int count = 0;
    while (reader_.next(event)) {
      take(event);
      ++count;
    }
    if (reader_.lost() != lost_) {
      lost_ = reader_.lost();
      steps_.forget_open();
      checkpoints_.clear();
      writer_.append(run_record::Lost{.time_us = writer_.now_us(), .events = lost_});
    }
    return count;
  }

  void write_steps(bool by_force) {
    write(steps_.flush(Clock::now().time_since_epoch().count(), by_force));
  }

  void look_at_board();

 private:
  void take(const Event& event);
  void write(std::optional<StepAggregator::Done> done);
  uint64_t recorded_time(int64_t time_ns) const { return writer_.at_us(time_of_event(time_ns)); }

  run_record::RecordWriter& writer_;
  const EventStream& events_;
  EventStream::Reader& reader_;
  StepAggregator steps_;
  std::map<std::string, int64_t> checkpoints_;  // that are under way
  uint64_t lost_ = 0;
  run_record::Now shown_;
};

void EventRecorder::take(const Event& event) {
  if (event.kind == EventKind::kCheckpointBegin) {
    checkpoints_[std::string(event.text())] = event.time_ns;
    writer_.append(run_record::Checkpoint{.time_us = recorded_time(event.time_ns),
                                          .is_open = true,
                                          .what = std::string(event.text())});
  }
  if (event.kind == EventKind::kCheckpointEnd) {
    const auto begun = checkpoints_.find(std::string(event.text()));
    if (begun != checkpoints_.end()) {
      writer_.append(run_record::Checkpoint{
          .time_us = recorded_time(begun->second),
          .took_us = static_cast<uint64_t>((event.time_ns - begun->second) / 1000),
          .failed = event.outcome() == EventOutcome::kFailed,
          .what = std::string(event.text())});
      checkpoints_.erase(begun);
    }
  }
  write(steps_.take(event));
}

void EventRecorder::write(std::optional<StepAggregator::Done> done) {
  if (!done) return;
  done->steps.time_us = recorded_time(done->end_ns);
  for (const auto& [name, us] : done->parts) {
    done->steps.parts.push_back({.name = writer_.name_id(name), .us = us});
  }
  writer_.append(done->steps);
}

// The oldest of what the user called, the wait or collective inside it, and since when.
void EventRecorder::look_at_board() {
  run_record::Now now;
  const int64_t clock = Clock::now().time_since_epoch().count();
  int64_t since = 0;
  for (const Event& event : events_.board()) {
    const bool is_called =
        event.kind == EventKind::kSpanBegin || event.kind == EventKind::kCheckpointBegin;
    const bool is_wait = event.kind == EventKind::kWaitBegin;
    if (!is_called && !is_wait && event.kind != EventKind::kCollectiveBegin) continue;
    if (clock - event.time_ns < kLastingNs) continue;
    if (since == 0) since = event.time_ns;
    if (is_called && now.activity.empty()) now.activity = event.text();
    if (!is_called && now.operation.empty()) now.operation = event.text();
    now.waits = now.waits || is_wait;
  }
  if (since != 0) now.since_us = recorded_time(since);
  const bool is_known = now.since_us == shown_.since_us && now.activity == shown_.activity &&
                        now.operation == shown_.operation && now.waits == shown_.waits;
  if (is_known) return;
  shown_ = now;
  now.time_us = writer_.now_us();
  writer_.append(now);
}

uint64_t number_variable(const char* name) {
  const std::string text = environment_variable(name).value_or("");
  uint64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

std::string own_program() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).filename().string();
}

}  // namespace

RunRecorder::RunRecorder(const std::filesystem::path& folder, run_record::Begin begin,
                         std::shared_ptr<const EventStream> events)
    : writer_(folder, std::move(begin)),
      events_(std::move(events)),
      reader_(events_),
      thread_([this] { run(); }) {}

RunRecorder::~RunRecorder() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  woken_.notify_one();
  thread_.join();
}

void RunRecorder::run() {
  EventRecorder recorder(writer_, *events_, reader_);
  milliseconds pause = kShortestPause;
  auto next_flush = Clock::now();
  auto next_look = Clock::now();
  bool has_warned = false;
  bool stops = false;
  while (!stops) {
    {
      std::unique_lock lock(mutex_);
      woken_.wait_for(lock, pause, [this] { return stops_; });
      stops = stops_;
    }
    const int count = recorder.drain();
    if (count > kManyEvents) pause = std::max(kShortestPause, pause / 2);
    if (count < kFewEvents) pause = std::min(kLongestPause, pause * 2);
    const auto now = Clock::now();
    if (now >= next_look) {
      recorder.look_at_board();
      next_look = now + kBoardInterval;
    }
    if (now < next_flush && !stops) continue;
    recorder.write_steps(stops);
    if (stops) writer_.append(run_record::End{.time_us = writer_.now_us()});
    writer_.flush();
    next_flush = now + kFlushInterval;
    if (const std::string failure = writer_.failure(); !failure.empty() && !has_warned) {
      has_warned = true;
      log(LogLevel::kWarning, "the run is not recorded any further: " + failure);
    }
  }
}

std::unique_ptr<RunRecorder> recorder_of_environment(uint64_t rank, uint64_t world_size,
                                                     std::shared_ptr<const EventStream> events) {
  const std::string folder = environment_variable(run_record::kFolderVariable).value_or("");
  if (folder.empty()) return nullptr;
  return std::make_unique<RunRecorder>(
      expanded_path(folder),
      run_record::Begin{.writer = run_record::WriterKind::kRank,
                        .index = rank,
                        .world_size = world_size,
                        .machine = number_variable("GROUP_RANK"),
                        .attempt = number_variable("TORCHELASTIC_RESTART_COUNT"),
                        .pid = static_cast<uint64_t>(getpid()),
                        .host = host_name(),
                        .program = own_program(),
                        .version = library_version()},
      std::move(events));
}

}  // namespace accelerate
