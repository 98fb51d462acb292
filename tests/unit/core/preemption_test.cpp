// Signals that are noted instead of ending the process.
#include "accelerate/preemption.h"

#include <gmock/gmock.h>

#include <csignal>
#include <memory>
#include <string>

#include "accelerate/errors.h"

namespace accelerate {
namespace {

volatile std::sig_atomic_t calls_of_own_handler = 0;

// A handler of SIGUSR2 that counts, for as long as it lives.
class CountingHandler {
 public:
  CountingHandler() {
    calls_of_own_handler = 0;
    before_ = std::signal(SIGUSR2, [](int) { calls_of_own_handler = calls_of_own_handler + 1; });
  }
  ~CountingHandler() { std::signal(SIGUSR2, before_); }
  CountingHandler(const CountingHandler&) = delete;
  CountingHandler& operator=(const CountingHandler&) = delete;

 private:
  void (*before_)(int) = nullptr;
};

TEST(SignalWatchTest, NotesEachOfItsSignalsAndNoOther) {
  const CountingHandler other;
  const SignalWatch watch({SIGTERM, SIGUSR1});
  EXPECT_FALSE(watch.raised());
  std::raise(SIGUSR2);
  EXPECT_FALSE(watch.raised());
  std::raise(SIGUSR1);
  EXPECT_TRUE(watch.raised());
  EXPECT_TRUE(watch.raised());
  const SignalWatch second({SIGTERM});
  EXPECT_FALSE(second.raised());
  std::raise(SIGTERM);
  EXPECT_TRUE(second.raised());
}

TEST(SignalWatchTest, DoesNotSeeWhatCameBeforeIt) {
  const SignalWatch first({SIGUSR1});
  std::raise(SIGUSR1);
  const SignalWatch second({SIGUSR1});
  EXPECT_TRUE(first.raised());
  EXPECT_FALSE(second.raised());
}

TEST(SignalWatchTest, CallsTheHandlerThatWasThereAndGivesTheSignalBackWithTheLastWatch) {
  const CountingHandler own;
  auto first = std::make_unique<SignalWatch>(std::vector<int>{SIGUSR2});
  auto second = std::make_unique<SignalWatch>(std::vector<int>{SIGUSR2});
  std::raise(SIGUSR2);
  EXPECT_EQ(calls_of_own_handler, 1);
  first.reset();
  EXPECT_TRUE(second->raised());
  std::raise(SIGUSR2);
  EXPECT_EQ(calls_of_own_handler, 2);
  const auto handler_now = [] {
    struct sigaction now {};
    sigaction(SIGUSR2, nullptr, &now);
    return (now.sa_flags & SA_SIGINFO) != 0;
  };
  EXPECT_TRUE(handler_now());
  second.reset();
  EXPECT_FALSE(handler_now());
  std::raise(SIGUSR2);
  EXPECT_EQ(calls_of_own_handler, 3);
}

TEST(SignalWatchTest, RefusesSignalsThatNoProgramCanHandle) {
  for (const int signal : {0, -1, SIGKILL, SIGSTOP, 1000}) {
    try {
      const SignalWatch watch({SIGUSR1, signal});
      ADD_FAILURE() << "signal " << signal << " was accepted";
    } catch (const UsageError& error) {
      EXPECT_EQ(error.message(),
                "signal " + std::to_string(signal) + " cannot be handled by a program");
    }
  }
}

}  // namespace
}  // namespace accelerate
