// kill -9 on several machines; see killing.h.
#include <gmock/gmock.h>

#include "launch/killing.h"

namespace accelerate::test {
namespace {

using ::testing::AnyOf;
using ::testing::Eq;

TEST_F(Killing, AnyProcessOfTwoMachinesLeavesNothingBehind) {
  for (int round = 0; round < 40 && !HasFailure(); ++round) {
    SCOPED_TRACE(where(round));
    const Setup setup{.machines = 2, .processes = 4, .flags = {"--rdzv_conf", "join_timeout=1"}};
    const auto program = script(kBusyWorker);
    auto main = start_machine(0, setup, program);
    auto other = start_machine(1, setup, program);
    pause_up_to(150);
    std::vector<pid_t> all;  // none until one has become a launcher
    const auto deadline = std::chrono::steady_clock::now() + kDeadline;
    while ((all = processes()).empty()) ASSERT_LT(std::chrono::steady_clock::now(), deadline);
    const pid_t victim = all[static_cast<size_t>(draw(static_cast<int>(all.size())))];
    const bool is_sleep = command_of(victim) == "sleep";
    const bool is_launcher = victim == main->pid() || victim == other->pid();
    kill(victim, SIGKILL);
    // A worker does not notice the death of a child that it does not wait for; nor does the job.
    if (is_sleep || !is_launcher) {
      pause_up_to(20);
      kill(draw(2) == 0 ? main->pid() : other->pid(), SIGTERM);
    }
    const RunResult on_main = main->wait();
    const RunResult on_other = other->wait();
    for (const RunResult& result : {on_main, on_other}) {
      EXPECT_THAT(result.exit_code, AnyOf(Eq(75), Eq(128 + SIGKILL), Eq(128 + SIGTERM)))
          << on_main.err << on_other.err;
    }
    expect_no_process_left();
  }
}

}  // namespace
}  // namespace accelerate::test
