// kill -9 of any process of a job, at any time: nothing hangs, nothing is left, the cause is named.
//
// The rounds are drawn from a seed that is printed: ACCELERATE_KILL_SEED repeats them.
#include <gmock/gmock.h>
#include <signal.h>

#include <cstdlib>
#include <fstream>
#include <random>
#include <thread>

#include "launch/machines.h"

namespace accelerate::test {
namespace {

using ::testing::AnyOf;
using ::testing::Eq;
using ::testing::HasSubstr;

unsigned seed() {
  const char* named = std::getenv("ACCELERATE_KILL_SEED");
  return named != nullptr ? static_cast<unsigned>(std::atol(named)) : std::random_device()();
}

std::string command_of(pid_t pid) {
  std::ifstream stream("/proc/" + std::to_string(pid) + "/cmdline");
  std::string text;
  std::getline(stream, text, '\0');
  return text;
}

// Each worker has a child of its own, and one that left its process group.
constexpr const char* kWorker = R"(
sleep 600 &
setsid sleep 600 &
echo ready
wait)";

class Killing : public Machines {
 protected:
  Killing() : seed_(seed()), random_(seed_) { RecordProperty("seed", std::to_string(seed_)); }

  int draw(int below) { return static_cast<int>(random_() % static_cast<unsigned>(below)); }
  void pause_up_to(int milliseconds) {
    std::this_thread::sleep_for(std::chrono::microseconds(draw(milliseconds * 1000)));
  }
  std::string where(int round) const {
    return "round " + std::to_string(round) + " of ACCELERATE_KILL_SEED=" + std::to_string(seed_);
  }
  // Some process of the job other than the launcher, or 0 if there is none yet.
  pid_t draw_process(pid_t launcher) {
    std::vector<pid_t> all = processes();
    std::erase(all, launcher);
    return all.empty() ? 0 : all[static_cast<size_t>(draw(static_cast<int>(all.size())))];
  }

  const unsigned seed_;
  std::mt19937 random_;
};

TEST_F(Killing, TheLauncherAtAnyTimeLeavesNothing) {
  for (int round = 0; round < 50 && !HasFailure(); ++round) {
    SCOPED_TRACE(where(round));
    auto run = start_script(3, kWorker);
    if (draw(2) == 0) run->wait_for_output("ready", 1 + draw(3));
    pause_up_to(40);
    run->signal(SIGKILL);
    EXPECT_EQ(run->wait().exit_code, 128 + SIGKILL);
    expect_no_process_left();
  }
}

TEST_F(Killing, AnyWorkerAtAnyTimeIsNamedAndEndsTheJob) {
  for (int round = 0; round < 50 && !HasFailure(); ++round) {
    SCOPED_TRACE(where(round));
    const int victim = draw(3);
    auto run = start_script(3, "echo $RANK: $$.\n" + std::string(kWorker));
    const std::string mark = std::to_string(victim) + ": ";
    run->wait_for_output(mark);
    run->wait_for_output(".", 3);
    pause_up_to(30);
    const pid_t pid = std::stoi(run->out().substr(run->out().find(mark) + mark.size()));
    ASSERT_EQ(kill(pid, SIGKILL), 0);
    const RunResult result = run->wait();
    EXPECT_EQ(result.exit_code, 128 + SIGKILL);
    EXPECT_THAT(result.err, HasSubstr("error: rank " + std::to_string(victim) + " of 3 on "));
    EXPECT_THAT(result.err, HasSubstr("was killed by signal 9 (SIGKILL)"));
    expect_no_process_left();
  }
}

TEST_F(Killing, AnyProcessOfARestartingJobLeavesNothingBehind) {
  for (int round = 0; round < 40 && !HasFailure(); ++round) {
    SCOPED_TRACE(where(round));
    // Fails by itself every now and then, so that restarts are hit too.
    auto run = start_script(2, "[ $RANK = 1 ] && { sleep 0.03; exit 4; }\n" + std::string(kWorker),
                            {"--max_restarts", "2"});
    pause_up_to(250);
    if (const pid_t pid = draw_process(run->pid()); pid != 0) kill(pid, SIGKILL);
    const RunResult result = run->wait();
    EXPECT_THAT(result.exit_code, AnyOf(Eq(4), Eq(128 + SIGKILL))) << result.err;
    EXPECT_THAT(result.err, HasSubstr("error: rank "));
    expect_no_process_left();
  }
}

TEST_F(Killing, AnyProcessOfTwoMachinesLeavesNothingBehind) {
  for (int round = 0; round < 40 && !HasFailure(); ++round) {
    SCOPED_TRACE(where(round));
    const Setup setup{.machines = 2, .processes = 4, .flags = {"--rdzv_conf", "join_timeout=3"}};
    const auto program = script(kWorker);
    auto main = start_machine(0, setup, program);
    auto other = start_machine(1, setup, program);
    pause_up_to(150);
    std::vector<pid_t> all = processes();
    ASSERT_FALSE(all.empty());
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

TEST_F(Killing, AnyRankOfAProgramOfTheLibraryIsNamed) {
  for (int round = 0; round < 20 && !HasFailure(); ++round) {
    SCOPED_TRACE(where(round));
    auto run = start({"launch", "--cpu", "--num_processes", "2", RANK_PROGRAM, "steps", "100000"});
    // Before, while and after the ranks meet.
    if (draw(3) > 0) run->wait_for_output("begins", 1 + draw(2));
    pause_up_to(100);
    const pid_t pid = draw_process(run->pid());
    if (pid == 0 || command_of(pid) != RANK_PROGRAM) {
      run->signal(SIGTERM);
      EXPECT_EQ(run->wait().exit_code, 128 + SIGTERM);
      continue;
    }
    kill(pid, SIGKILL);
    const RunResult result = run->wait();
    EXPECT_EQ(result.exit_code, 128 + SIGKILL) << result.err;
    EXPECT_THAT(result.err, HasSubstr("(pid " + std::to_string(pid) + ")"));
    expect_no_process_left();
  }
}

}  // namespace
}  // namespace accelerate::test
