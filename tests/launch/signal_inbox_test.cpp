#include "launch/job/signal_inbox.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "accelerate/errors.h"

namespace accelerate::launch {
namespace {

struct SignalState {
  sighandler_t on_pipe;
  sighandler_t on_child;
  bool blocks_term;
  bool operator==(const SignalState&) const = default;
};

SignalState signal_state() {
  struct sigaction pipe {};
  struct sigaction child {};
  sigset_t mask;
  sigaction(SIGPIPE, nullptr, &pipe);
  sigaction(SIGCHLD, nullptr, &child);
  sigprocmask(SIG_SETMASK, nullptr, &mask);
  return {pipe.sa_handler, child.sa_handler, sigismember(&mask, SIGTERM) == 1};
}

class SignalInboxState : public ::testing::Test {
 protected:
  // Both differ from what the inbox sets.
  void SetUp() override {
    signal(SIGPIPE, SIG_DFL);
    signal(SIGCHLD, SIG_IGN);
  }
  void TearDown() override { signal(SIGCHLD, SIG_DFL); }

  const SignalState before_{SIG_DFL, SIG_IGN, false};
};

TEST_F(SignalInboxState, IsPutBackAtTheEnd) {
  {
    const SignalInbox inbox;
    EXPECT_EQ(signal_state(), (SignalState{SIG_IGN, SIG_DFL, true}));
  }
  EXPECT_EQ(signal_state(), before_);
}

TEST_F(SignalInboxState, IsPutBackWhenThereAreNoDescriptorsLeft) {
  rlimit original{};
  getrlimit(RLIMIT_NOFILE, &original);
  const rlimit none{.rlim_cur = 0, .rlim_max = original.rlim_max};
  setrlimit(RLIMIT_NOFILE, &none);
  EXPECT_THROW(SignalInbox(), CommError);
  setrlimit(RLIMIT_NOFILE, &original);
  EXPECT_EQ(signal_state(), before_);
}

}  // namespace
}  // namespace accelerate::launch
