// The thread that writes what was logged.
#include "tracking/tracker_writer.h"

#include <gmock/gmock.h>

#include <condition_variable>
#include <future>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "support/error_of.h"

namespace accelerate::tracking {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr auto kLong = 120s;

// Notes what it is told; waits where a test says so.
class NotingTracker : public GeneralTracker {
 public:
  std::string name() const override { return "noting"; }
  void start(const TrackerRun& run) override { note("start " + run.project); }
  void store_init_configuration(const TrackerConfig& config) override {
    note("config " + std::to_string(config.size()));
  }
  void log(std::span<const NamedValue> values, const TrackedStep& at) override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !held_; });
    if (fails_) throw std::runtime_error("cannot write");
    std::string text = std::to_string(at.step.value_or(-1));
    for (const NamedValue& value : values) {
      text += " " + value.name + "=" + std::to_string(static_cast<int>(*value.value.number()));
    }
    calls_.push_back(text);
    thread_ = std::this_thread::get_id();
  }
  bool log_figure(const TrackedFigure& figure, const TrackedStep&) override {
    note("figure " + figure.name);
    return true;
  }
  void continue_run() override { note("continue"); }
  void flush() override { ++flushes_; }
  void finish() override { note("finish"); }

  void hold(bool held) {
    {
      const std::lock_guard lock(mutex_);
      held_ = held;
    }
    changed_.notify_all();
  }
  void set_fails(bool fails) {
    const std::lock_guard lock(mutex_);
    fails_ = fails;
  }
  std::vector<std::string> calls() {
    const std::lock_guard lock(mutex_);
    return calls_;
  }
  std::thread::id thread() {
    const std::lock_guard lock(mutex_);
    return thread_;
  }

 private:
  void note(std::string call) {
    const std::lock_guard lock(mutex_);
    calls_.push_back(std::move(call));
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool held_ = false;
  bool fails_ = false;
  std::atomic<int> flushes_{0};
  std::vector<std::string> calls_;
  std::thread::id thread_;
};

class SwitchedNumbers : public PendingNumbers {
 public:
  bool ready() const override { return is_ready; }
  std::vector<double> get() const override { return {7, 8}; }
  std::atomic<bool> is_ready{false};
};

class Writer : public testing::Test {
 protected:
  std::unique_ptr<TrackerWriter> make(TrackerInitOptions options = {}) {
    return std::make_unique<TrackerWriter>(
        std::vector<std::shared_ptr<GeneralTracker>>{tracker_}, TrackerRun{.project = "demo"},
        options, [this](LogLevel level, std::string_view text) {
          const std::lock_guard lock(mutex_);
          said_.push_back(std::string(to_string(level)) + ": " + std::string(text));
        });
  }
  static bool log(TrackerWriter& writer, int64_t step, double value) {
    return writer.push([&](Record& record) {
      record.kind = RecordKind::kValues;
      record.at.step = step;
      record.add("x").value = value;
    });
  }
  std::vector<std::string> said() {
    const std::lock_guard lock(mutex_);
    return said_;
  }

  std::shared_ptr<NotingTracker> tracker_ = std::make_shared<NotingTracker>();
  std::mutex mutex_;
  std::vector<std::string> said_;
};

TEST_F(Writer, GivesRecordsToTheTrackersInOrderOnAThreadOfItsOwn) {
  auto writer = make();
  writer->push([](Record& record) {
    record.kind = RecordKind::kConfig;
    record.add("lr").value = 0.1;
    record.add("n").value = 2;
  });
  log(*writer, 1, 10);
  writer->push([](Record& record) { record.kind = RecordKind::kContinue; });
  log(*writer, 2, 20);
  writer->stop(kLong);
  EXPECT_THAT(tracker_->calls(),
              ElementsAre("start demo", "config 2", "1 x=10", "continue", "2 x=20", "finish"));
  EXPECT_NE(tracker_->thread(), std::this_thread::get_id());
  EXPECT_EQ(writer->report().written, 4U);
  EXPECT_THAT(said(), ElementsAre());
}

TEST_F(Writer, FlushReturnsWhenWhatWasPushedBeforeIsWritten) {
  auto writer = make({.flush_interval = std::chrono::hours(1)});
  for (int64_t i = 0; i < 100; ++i) log(*writer, i, 0);
  EXPECT_TRUE(writer->flush(kLong));
  EXPECT_EQ(tracker_->calls().size(), 101U);
  tracker_->hold(true);
  log(*writer, 100, 0);
  EXPECT_FALSE(writer->flush(5ms));
  tracker_->hold(false);
  EXPECT_TRUE(writer->flush(kLong));
  EXPECT_EQ(tracker_->calls().size(), 102U);
}

TEST_F(Writer, FullQueueDropsCountsAndSaysIt) {
  auto writer = make({.queue_capacity = 8});
  tracker_->hold(true);
  int taken = 0;
  for (int64_t i = 0; i < 100; ++i) taken += log(*writer, i, 0) ? 1 : 0;
  EXPECT_GE(taken, 8);
  EXPECT_LE(taken, 9) << "one may be in the hands of the tracker";
  tracker_->hold(false);
  writer->stop(kLong);
  EXPECT_EQ(writer->report().dropped, static_cast<uint64_t>(100 - taken));
  EXPECT_EQ(writer->report().written, static_cast<uint64_t>(taken));
  ASSERT_FALSE(said().empty());
  EXPECT_THAT(said().back(), HasSubstr("warning: tracking: " + std::to_string(100 - taken) +
                                       " calls were dropped so far"));
  EXPECT_THAT(said().back(), HasSubstr("queue_capacity (now 8)"));
}

TEST_F(Writer, FullQueueOfManyFastCallsIsEmptiedBeforeTheInterval) {
  auto writer = make({.queue_capacity = 8, .flush_interval = std::chrono::hours(1)});
  int64_t step = 0;
  while (tracker_->calls().size() < 20) {
    if (log(*writer, step, 0)) ++step;
    std::this_thread::yield();
  }
}

TEST_F(Writer, ValuesOfADeviceAreWrittenWhenTheyAreReadyAndInOrder) {
  auto writer = make({.flush_interval = 1ms});
  const auto numbers = std::make_shared<SwitchedNumbers>();
  writer->push([&](Record& record) {
    record.kind = RecordKind::kValues;
    record.at.step = 1;
    record.add("a");
    record.add("b").value = 2;
    record.add("c");
    record.waiting = {0, 2};
    record.pending = numbers;
  });
  log(*writer, 2, 20);
  EXPECT_FALSE(writer->flush(20ms)) << "the device has not computed them";
  EXPECT_THAT(tracker_->calls(), ElementsAre("start demo"));
  numbers->is_ready = true;
  EXPECT_TRUE(writer->flush(kLong));
  EXPECT_THAT(tracker_->calls(), ElementsAre("start demo", "1 a=7 b=2 c=8", "2 x=20"));
}

TEST_F(Writer, DeviceThatNeverAnswersDoesNotHoldTheEnd) {
  auto writer = make();
  writer->push([&](Record& record) {
    record.kind = RecordKind::kValues;
    record.add("a");
    record.waiting = {0};
    record.pending = std::make_shared<SwitchedNumbers>();
  });
  log(*writer, 2, 20);
  writer->stop(10ms);
  EXPECT_THAT(tracker_->calls(), ElementsAre("start demo", "2 x=20", "finish"));
  EXPECT_EQ(writer->report().dropped, 1U);
}

TEST_F(Writer, ErrorOfATrackerIsSaidOnceAndOthersGoOn) {
  const auto other = std::make_shared<NotingTracker>();
  TrackerWriter writer({tracker_, other}, {.project = "demo"}, {},
                       [this](LogLevel level, std::string_view text) {
                         const std::lock_guard lock(mutex_);
                         said_.push_back(std::string(to_string(level)) + ": " + std::string(text));
                       });
  tracker_->set_fails(true);
  for (int64_t step = 1; step <= 3; ++step) log(writer, step, 1);
  EXPECT_TRUE(writer.flush(kLong));
  tracker_->set_fails(false);
  log(writer, 4, 1);
  writer.stop(kLong);
  EXPECT_THAT(said(), ElementsAre("error: tracker noting: cannot write",
                                  HasSubstr("error: tracking: 3 calls could not be written")));
  EXPECT_THAT(tracker_->calls(), ElementsAre("start demo", "4 x=1", "finish"));
  EXPECT_EQ(other->calls().size(), 6U);
  EXPECT_EQ(writer.report().failed, 3U);
}

TEST_F(Writer, RecordForOneTrackerGoesToItAlone) {
  const auto other = std::make_shared<NotingTracker>();
  TrackerWriter writer({tracker_, other}, {.project = "demo"}, {},
                       [](LogLevel, std::string_view) {});
  writer.push([](Record& record) {
    record.kind = RecordKind::kValues;
    record.tracker = 1;
    record.add("x").value = 3;
  });
  writer.stop(kLong);
  EXPECT_THAT(tracker_->calls(), ElementsAre("start demo", "finish"));
  EXPECT_THAT(other->calls(), ElementsAre("start demo", "-1 x=3", "finish"));
}

TEST_F(Writer, AttachmentsHaveRoomOfTheirOwn) {
  auto writer = make({.attachment_bytes = 100});
  const auto push = [&](size_t bytes) {
    return writer->push_attachment(bytes, [&](Record& record) {
      record.kind = RecordKind::kAttachment;
      record.attachment = std::make_shared<const Attachment>(
          Attachment{.content = TrackedFigure{.name = std::to_string(bytes)}});
    });
  };
  tracker_->hold(true);
  log(*writer, 1, 1);  // so that what follows waits
  EXPECT_TRUE(push(60));
  EXPECT_FALSE(push(50));
  EXPECT_TRUE(push(40));
  tracker_->hold(false);
  EXPECT_TRUE(writer->flush(kLong));
  EXPECT_TRUE(push(100));
  writer->stop(kLong);
  EXPECT_THAT(tracker_->calls(),
              ElementsAre("start demo", "1 x=1", "figure 60", "figure 40", "figure 100", "finish"));
  EXPECT_EQ(writer->report().dropped, 1U);
}

TEST_F(Writer, KindThatATrackerHasNoUseForIsSaidOnce) {
  auto writer = make();
  for (int i = 0; i < 2; ++i) {
    writer->push_attachment(1, [&](Record& record) {
      record.kind = RecordKind::kAttachment;
      record.attachment = std::make_shared<const Attachment>(Attachment{.content = TrackedTable{}});
    });
  }
  writer->stop(kLong);
  EXPECT_THAT(said(), ElementsAre(HasSubstr("info: tracker noting keeps no tables")));
  EXPECT_EQ(writer->report().failed, 0U);
}

TEST_F(Writer, TrackerThatCannotStartIsAnErrorOfTheCaller) {
  class Broken : public NotingTracker {
    void start(const TrackerRun&) override {
      throw TrackerError({.what = "no folder", .where = "x", .hint = "y"});
    }
  };
  tracker_ = std::make_shared<Broken>();
  EXPECT_THAT(test::error_text<TrackerError>([&] { make(); }), HasSubstr("no folder"));
}

}  // namespace
}  // namespace accelerate::tracking
