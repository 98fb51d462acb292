// What was logged is on disk however the process ends. Each case is a process of its own.
#include "tracking/exit_flush.h"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <thread>

#include "tracking/json_lines_tracker.h"
#include "tracking/tracker_writer.h"
#include "unit/tracking/tracked_run.h"

namespace accelerate::tracking {
namespace {

using namespace std::chrono_literals;
using test::lines_of;

class ProcessEnd : public test::TrackedRun {
 protected:
  // Runs `body` in a child that has logged 100 values and would write them in an hour. The status
  // of waitpid().
  int end_of(const std::function<void()>& body) {
    const pid_t child = ::fork();
    if (child == 0) {
      TrackerWriter writer({std::make_shared<JsonLinesTracker>(JsonLinesTrackerOptions{})}, run(),
                           {.flush_interval = std::chrono::hours(1)},
                           [](LogLevel, std::string_view) {});
      const ExitFlush flush(writer);
      for (int64_t step = 0; step < 100; ++step) {
        writer.push([&](Record& record) {
          record.kind = RecordKind::kValues;
          record.at.step = step;
          record.add("loss").value = 0.5;
        });
      }
      body();
      ::_exit(99);  // nothing is written on this way
    }
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    return status;
  }
  size_t written() const {
    if (!std::filesystem::exists(folder_ / "demo/metrics.jsonl")) return 0;
    const auto lines = lines_of(read("demo/metrics.jsonl"));
    for (const std::string& line : lines) EXPECT_TRUE(nlohmann::json::accept(line)) << line;
    return lines.size();
  }
};

TEST_F(ProcessEnd, WithoutAFlushNothingWouldBeThere) {
  const int status = end_of([] {});
  EXPECT_EQ(WEXITSTATUS(status), 99);
  EXPECT_EQ(written(), 0U) << "these tests could not fail";
}

TEST_F(ProcessEnd, SignalThatEndsTheProcess) {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
    const int status = end_of([&] {
      ::kill(::getpid(), signal);
      std::this_thread::sleep_for(1min);
    });
    EXPECT_TRUE(WIFSIGNALED(status));
    EXPECT_EQ(WTERMSIG(status), signal) << "it ends as without the library";
    EXPECT_EQ(written(), 100U) << signal;
    std::filesystem::remove_all(folder_ / "demo");
  }
}

TEST_F(ProcessEnd, ExceptionThatNobodyCatches) {
  const int status = end_of([] { std::thread([] { throw std::runtime_error("crash"); }).join(); });
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGABRT);
  EXPECT_EQ(written(), 100U);
}

TEST_F(ProcessEnd, Exit) {
  const int status = end_of([] { std::exit(7); });
  EXPECT_EQ(WEXITSTATUS(status), 7);
  EXPECT_EQ(written(), 100U);
}

TEST_F(ProcessEnd, Fault) {
  const int status = end_of([] {
    volatile int* nowhere = nullptr;
    *nowhere = 1;  // NOLINT
  });
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGSEGV);
  EXPECT_EQ(written(), 100U);
}

std::atomic<int> handled{0};

TEST_F(ProcessEnd, HandlerOfTheProgramStillDecides) {
  const int status = end_of([] {
    // Above the library's, as a program that sets it later has it.
    std::signal(SIGTERM, [](int) { ++handled; });
    ::raise(SIGTERM);
    ::_exit(handled == 1 ? 5 : 6);
  });
  EXPECT_EQ(WEXITSTATUS(status), 5);
}

TEST_F(ProcessEnd, HandlerThatWasThereBeforeIsCalledAndTheProcessLives) {
  const int status = [&] {
    const auto before = std::signal(SIGTERM, [](int) { ++handled; });
    const int result = end_of([] {
      ::raise(SIGTERM);
      ::_exit(handled == 1 ? 5 : 6);
    });
    std::signal(SIGTERM, before);
    return result;
  }();
  EXPECT_EQ(WEXITSTATUS(status), 5);
  EXPECT_EQ(written(), 100U);
}

TEST_F(ProcessEnd, ForkedChildLeavesTheWriterToItsParent) {
  const int status = end_of([] {
    const pid_t child = ::fork();
    if (child == 0) std::exit(3);
    int end = 0;
    ::waitpid(child, &end, 0);
    ::_exit(WEXITSTATUS(end));
  });
  EXPECT_EQ(WEXITSTATUS(status), 3);
  EXPECT_EQ(written(), 0U);
}

TEST_F(ProcessEnd, HandlersAreThereOnlyWhileSomebodyTracks) {
  struct sigaction before {};
  ::sigaction(SIGTERM, nullptr, &before);
  {
    TrackerWriter writer({}, run(), {}, [](LogLevel, std::string_view) {});
    const ExitFlush first(writer);
    const ExitFlush second(writer);
    struct sigaction during {};
    ::sigaction(SIGTERM, nullptr, &during);
    EXPECT_NE(during.sa_handler, before.sa_handler);
  }
  struct sigaction after {};
  ::sigaction(SIGTERM, nullptr, &after);
  EXPECT_EQ(after.sa_handler, before.sa_handler);
}

}  // namespace
}  // namespace accelerate::tracking
