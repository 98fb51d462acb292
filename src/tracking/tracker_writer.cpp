#include "tracking/tracker_writer.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <exception>
#include <span>
#include <utility>

namespace accelerate::tracking {
namespace {

using namespace std::chrono_literals;

constexpr auto kDeviceGrace = 500ms;  // that a dying process gives its device
constexpr auto kBetweenDropReports = 10s;
constexpr auto kPoll = 1ms;  // where somebody waits

timespec after(std::chrono::milliseconds pause) {
  timespec until{};
  ::clock_gettime(CLOCK_REALTIME, &until);
  const auto ns = until.tv_nsec + std::chrono::nanoseconds(pause % 1000ms).count();
  until.tv_sec += pause / 1000ms + ns / 1'000'000'000;
  until.tv_nsec = ns % 1'000'000'000;
  return until;
}

std::string_view kind_of(const Attachment& attachment) {
  constexpr std::string_view kKinds[] = {"images", "tables", "histograms", "figures", "artifacts"};
  return kKinds[attachment.content.index()];
}

// Signals are for the threads of the program: a handler that waits for this thread must not run on
// it.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    sigfillset(&all);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP}) {
      sigdelset(&all, fault);
    }
    pthread_sigmask(SIG_BLOCK, &all, &before_);
  }
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace

TrackerWriter::TrackerWriter(std::vector<std::shared_ptr<GeneralTracker>> trackers,
                             const TrackerRun& run, const TrackerInitOptions& options, Say say)
    : trackers_(std::move(trackers)),
      options_(options),
      say_(std::move(say)),
      process_(::getpid()),
      queue_(options.queue_capacity),
      notes_(trackers_.size()) {
  for (const auto& tracker : trackers_) tracker->start(run);
  ::sem_init(&wake_, 0, 0);
  const BlockedSignals blocked;  // the new thread inherits them
  thread_ = std::thread([this] { this->run(); });
}

TrackerWriter::~TrackerWriter() {
  if (::getpid() != process_) {
    thread_.detach();  // a forked child has no such thread
    return;
  }
  stop(10s);
  ::sem_destroy(&wake_);
}

void TrackerWriter::stop(std::chrono::milliseconds most) {
  if (::getpid() != process_ || !thread_.joinable()) return;
  stop_patience_ = most;
  stopping_.store(true, std::memory_order_release);
  wake();
  thread_.join();
}

bool TrackerWriter::flush(std::chrono::milliseconds most) {
  if (::getpid() != process_) return false;
  const uint64_t target = queue_.pushed();
  uint64_t asked = flush_asked_.load();
  while (asked < target && !flush_asked_.compare_exchange_weak(asked, target)) {
  }
  wake();
  std::unique_lock lock(mutex_);
  return flushed_.wait_for(lock, most,
                           [&] { return flush_done_.load() >= target || ended_.load(); });
}

// Nothing here but what a signal handler may do.
bool TrackerWriter::flush_in_handler(std::chrono::milliseconds most) noexcept {
  if (::getpid() != process_ || pthread_equal(pthread_self(), thread_.native_handle()) != 0) {
    return false;
  }
  const uint64_t before = hasty_done_.load();
  hasty_.store(true);
  wake();
  for (auto waited = 0ms; waited < most; waited += kPoll) {
    if (hasty_done_.load() > before || ended_.load()) return true;
    const timespec pause{.tv_sec = 0, .tv_nsec = std::chrono::nanoseconds(kPoll).count()};
    ::nanosleep(&pause, nullptr);
  }
  return false;
}

WriterReport TrackerWriter::report() const {
  return {.written = written_.load(), .dropped = dropped_.load(), .failed = failed_.load()};
}

void TrackerWriter::wait_for_work() {
  const bool is_awaited = flush_asked_.load() > flush_done_.load();
  const timespec until = after(is_awaited ? kPoll : options_.flush_interval);
  while (::sem_timedwait(&wake_, &until) != 0 && errno == EINTR) {
  }
  while (::sem_trywait(&wake_) == 0) {  // one look answers all that have called
  }
}

void TrackerWriter::run() {
  pthread_setname_np(pthread_self(), "trackers");
  while (!stopping_.load(std::memory_order_acquire)) {
    wait_for_work();
    if (hasty_.exchange(false)) {
      drain(Clock::now() + kDeviceGrace);
      flush_trackers(/*before_end=*/true);
      hasty_done_.fetch_add(1);
    } else {
      drain(std::nullopt);
      flush_trackers(/*before_end=*/false);
    }
    answer_flushes();
    say_drops(/*at_end=*/false);
  }
  drain(Clock::now() + stop_patience_);
  flush_trackers(/*before_end=*/true);
  for (size_t i = 0; i < trackers_.size(); ++i) {
    attempt(i, [&] { trackers_[i]->finish(); });
  }
  say_drops(/*at_end=*/true);
  ended_.store(true);
  answer_flushes();
}

void TrackerWriter::answer_flushes() {
  const uint64_t written = queue_.popped();
  if (flush_done_.load() >= flush_asked_.load() && !ended_.load()) return;
  {
    const std::lock_guard lock(mutex_);  // nobody falls asleep between its look and the call
    flush_done_.store(written);
  }
  flushed_.notify_all();
}

void TrackerWriter::drain(const std::optional<Clock::time_point>& deadline) {
  while (Record* record = queue_.front()) {
    if (!record->is_ready()) {
      if (!deadline) return;
      if (Clock::now() < *deadline) {
        std::this_thread::sleep_for(kPoll);
        continue;
      }
      count_drop();
    } else {
      write(*record);
    }
    if (record->reserved_bytes > 0) attachment_bytes_.fetch_sub(record->reserved_bytes);
    queue_.pop();
  }
}

void TrackerWriter::write(Record& record) {
  bool well = true;
  std::shared_ptr<const Attachment> attachment = record.attachment;
  try {
    if (record.pending) {
      const std::vector<double> numbers = record.pending->get();
      for (size_t i = 0; i < record.waiting.size(); ++i) {
        record.values[record.waiting[i]].value = numbers.at(i);
      }
    }
    if (record.pending_attachment) {
      attachment = std::make_shared<const Attachment>(record.pending_attachment->get());
    }
  } catch (const std::exception& error) {
    failed_.fetch_add(1);
    say_(LogLevel::kError, std::string("tracking: a value could not be read: ") + error.what());
    return;
  }
  for (size_t i = 0; i < trackers_.size(); ++i) {
    if (record.tracker != Record::kAllTrackers && record.tracker != static_cast<int>(i)) continue;
    well &= attempt(i, [&] { give(*trackers_[i], i, record, attachment.get()); });
  }
  (well ? written_ : failed_).fetch_add(1);
}

void TrackerWriter::give(GeneralTracker& tracker, size_t index, const Record& record,
                         const Attachment* attachment) {
  const std::span<const NamedValue> values(record.values.data(), record.value_count);
  switch (record.kind) {
    case RecordKind::kNothing:
      break;
    case RecordKind::kValues:
      tracker.log(values, record.at);
      break;
    case RecordKind::kConfig:
      tracker.store_init_configuration(TrackerConfig(values.begin(), values.end()));
      break;
    case RecordKind::kContinue:
      tracker.continue_run();
      break;
    case RecordKind::kAttachment:
      if (attachment != nullptr) give_attachment(tracker, index, record.at, *attachment);
      break;
  }
}

void TrackerWriter::give_attachment(GeneralTracker& tracker, size_t index, const TrackedStep& at,
                                    const Attachment& attachment) {
  struct Give {
    GeneralTracker& tracker;
    const TrackedStep& at;
    bool operator()(const std::vector<TrackedImage>& images) const {
      return tracker.log_images(images, at);
    }
    bool operator()(const TrackedTable& table) const { return tracker.log_table(table, at); }
    bool operator()(const TrackedHistogram& histogram) const {
      return tracker.log_histogram(histogram, at);
    }
    bool operator()(const TrackedFigure& figure) const { return tracker.log_figure(figure, at); }
    bool operator()(const TrackedArtifact& artifact) const {
      return tracker.log_artifact(artifact);
    }
  };
  if (!std::visit(Give{tracker, at}, attachment.content)) {
    say_unsupported(index, kind_of(attachment));
  }
}

void TrackerWriter::say_unsupported(size_t index, std::string_view kind) {
  auto& said = notes_[index].unsupported;
  if (std::ranges::find(said, kind) != said.end()) return;
  said.emplace_back(kind);
  say_(LogLevel::kInfo, "tracker " + trackers_[index]->name() + " keeps no " + std::string(kind) +
                            " of this kind: they are left out there");
}

void TrackerWriter::flush_trackers(bool before_end) {
  for (size_t i = 0; i < trackers_.size(); ++i) {
    GeneralTracker& tracker = *trackers_[i];
    attempt(i, [&] { before_end ? tracker.flush_before_end() : tracker.flush(); });
  }
}

bool TrackerWriter::attempt(size_t index, const std::function<void()>& call) {
  std::string problem;
  try {
    call();
    return true;
  } catch (const std::exception& error) {
    problem = error.what();
  } catch (...) {
    problem = "an exception that is not a std::exception";
  }
  if (problem != notes_[index].last_error) {
    notes_[index].last_error = problem;
    say_(LogLevel::kError, "tracker " + trackers_[index]->name() + ": " + problem);
  }
  return false;
}

void TrackerWriter::say_drops(bool at_end) {
  const uint64_t dropped = dropped_.load();
  const auto now = Clock::now();
  if (dropped > drops_said_ && (at_end || now - drops_said_at_ >= kBetweenDropReports)) {
    drops_said_ = dropped;
    drops_said_at_ = now;
    say_(LogLevel::kWarning,
         "tracking: " + std::to_string(dropped) +
             " calls were dropped so far, because the trackers did not keep up: log less often, or "
             "set TrackerInitOptions::queue_capacity (now " +
             std::to_string(queue_.capacity()) + ") or attachment_bytes higher");
  }
  if (const uint64_t failed = failed_.load(); at_end && failed > 0) {
    say_(LogLevel::kError, "tracking: " + std::to_string(failed) +
                               " calls could not be written: see the errors above");
  }
}

}  // namespace accelerate::tracking
