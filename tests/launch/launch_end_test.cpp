// Signals to the launcher, and that nothing is left when it ends. Launcher::TearDown looks for
// processes after each of these tests.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <linux/sched.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "launch/launcher_run.h"
#include "support/sanitizers.h"

namespace accelerate::test {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// The state letter of a process: R, S, T for stopped, ...
char state_of(pid_t pid) {
  std::ifstream stream("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(stream, text);
  const size_t end = text.rfind(')');
  return end == std::string::npos ? '?' : text[end + 2];
}

bool becomes(pid_t pid, bool stopped) {
  const auto deadline = std::chrono::steady_clock::now() + kDeadline;
  while (std::chrono::steady_clock::now() < deadline) {
    if ((state_of(pid) == 'T') == stopped) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return false;
}

bool appears(const std::filesystem::path& file) {
  const auto deadline = std::chrono::steady_clock::now() + kDeadline;
  while (std::chrono::steady_clock::now() < deadline) {
    if (std::filesystem::exists(file)) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

// Waits until the pipe to which the process writes its output is full.
bool fills_its_output(pid_t pid) {
  const std::string output = "/proc/" + std::to_string(pid) + "/fd/1";
  const auto deadline = std::chrono::steady_clock::now() + kDeadline;
  while (std::chrono::steady_clock::now() < deadline) {
    const UniqueFd pipe(open(output.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC));
    pollfd room{pipe.get(), POLLOUT, 0};
    if (pipe && poll(&room, 1, 0) == 0) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

// Waits until no SIGINT is left that the process has not taken; false if that lasts too long.
bool takes_interrupt(pid_t pid) {
  const auto deadline = std::chrono::steady_clock::now() + kDeadline;
  while (std::chrono::steady_clock::now() < deadline) {
    std::ifstream stream("/proc/" + std::to_string(pid) + "/status");
    bool is_pending = false;
    for (std::string line; std::getline(stream, line);) {
      if (!line.starts_with("ShdPnd:")) continue;
      is_pending = (std::stoull(line.substr(7), nullptr, 16) >> (SIGINT - 1) & 1) != 0;
    }
    if (!is_pending) return true;
  }
  return false;
}

std::string name_of(pid_t pid) {
  std::ifstream stream("/proc/" + std::to_string(pid) + "/comm");
  std::string name;
  std::getline(stream, name);
  return name;
}

// A child of this test that sleeps under the number `pid`, which must be free; -1 with errno set
// where there is none: ENOSYS or EPERM if the kernel does not let us choose.
pid_t sleeper_with_pid(pid_t pid) {
  clone_args arguments{};
  arguments.exit_signal = SIGCHLD;
  arguments.set_tid = reinterpret_cast<uintptr_t>(&pid);
  arguments.set_tid_size = 1;
  const long child = syscall(SYS_clone3, &arguments, sizeof arguments);
  while (child == 0) pause();
  return static_cast<pid_t>(child);
}

class StopSignal : public Launcher, public ::testing::WithParamInterface<int> {};

TEST_P(StopSignal, ReachesTheWorkersAndBecomesTheExitCode) {
  auto run = start_script(3, "sleep 600 & echo ready; exec sleep 600");
  run->wait_for_output("ready", 3);
  run->signal(GetParam());
  const RunResult result = run->wait();
  EXPECT_EQ(result.exit_code, 128 + GetParam());
  EXPECT_THAT(result.err, HasSubstr("accelerate launch: stopped by SIG"));
  EXPECT_THAT(result.err, HasSubstr("  ranks 0, 1 and 2 were stopped\n"));
}

class LauncherEnd : public Launcher {
 protected:
  // The process that watches over the launcher, once it has named itself.
  pid_t guard() const {
    const auto deadline = std::chrono::steady_clock::now() + kDeadline;
    while (std::chrono::steady_clock::now() < deadline) {
      for (const pid_t pid : processes()) {
        if (name_of(pid) == "accelerate-grd") return pid;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    ADD_FAILURE() << "there is no guard";
    return 0;
  }
};

INSTANTIATE_TEST_SUITE_P(Each, StopSignal, ::testing::Values(SIGINT, SIGTERM, SIGHUP, SIGQUIT));

TEST_F(Launcher, WorkersThatSaveTheirWorkOnASignalAreNotCalledFailedButTheExitCodeTells) {
  auto run = start_script(2, R"(
trap 'echo saved; exit 0' TERM
echo ready
while :; do sleep 0.05; done)");
  run->wait_for_output("ready", 2);
  run->signal(SIGTERM);
  const RunResult result = run->wait();
  EXPECT_EQ(result.exit_code, 128 + SIGTERM);
  EXPECT_EQ(sorted_lines(result.out),
            (std::vector<std::string>{"ready", "ready", "saved", "saved"}));
  EXPECT_THAT(result.err, EndsWith("accelerate launch: stopped by SIGTERM\n"
                                   "  ranks 0 and 1 ended without error\n"));
}

constexpr const char* kDeafWorker = R"(
trap '' INT TERM
echo ready
while :; do sleep 0.05; done)";

TEST_F(Launcher, WorkersThatIgnoreASignalAreKilledAfterTheGracePeriod) {
  auto run = start_script(2, kDeafWorker, {"--grace-period=0.2"});
  run->wait_for_output("ready", 2);
  run->signal(SIGTERM);
  const RunResult result = run->wait();
  EXPECT_EQ(result.exit_code, 128 + SIGTERM);
  EXPECT_THAT(result.err, HasSubstr("  ranks 0 and 1 did not stop within "));
}

// Whether the process `pid`, a child of this one, ends within kDeadline. Its status is not taken.
bool ends(pid_t pid) {
  const auto deadline = std::chrono::steady_clock::now() + kDeadline;
  while (std::chrono::steady_clock::now() < deadline) {
    siginfo_t info{};
    if (waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
        info.si_pid == pid) {
      return true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return false;
}

TEST_F(Launcher, OneStopSignalEndsItAlsoIfNobodyReadsItsOutput) {
  auto run = start_script(1, "echo begun > $0.begun; exec yes");
  ASSERT_TRUE(appears(folder_.path() / "worker.sh.begun"));
  ASSERT_TRUE(fills_its_output(run->pid()));
  run->signal(SIGTERM);
  EXPECT_TRUE(ends(run->pid()));
  EXPECT_EQ(run->wait().exit_code, 128 + SIGTERM);
}

TEST_F(Launcher, OneStopSignalEndsItAlsoIfNobodyReadsThePipeOfBothStreams) {
  const std::string worker =
      folder_.write("worker.sh", "echo begun > $0.begun; yes >&2 & exec yes");
  // The shell reads nothing of what its launcher writes into the pipe; it ends with it.
  auto run = start({"bash", "-c",
                    "\"$@\" 2>&1 | { while kill -0 $(cat " + (folder_.path() / "pid").string() +
                        " 2>/dev/null || echo $$) 2>/dev/null; do sleep 0.05; done; }; "
                        "echo ${PIPESTATUS[0]}",
                    "bash", "bash", "-c", "echo $$ > $0.new; mv $0.new $0; exec \"$@\"",
                    (folder_.path() / "pid").string(), ACCELERATE_PROGRAM, "launch",
                    "--num_processes", "1", "sh", worker},
                   {.as_is = true});
  ASSERT_TRUE(appears(folder_.path() / "worker.sh.begun"));
  pid_t launcher = 0;
  std::ifstream(folder_.path() / "pid") >> launcher;
  ASSERT_GT(launcher, 0);
  ASSERT_TRUE(fills_its_output(launcher));
  kill(launcher, SIGTERM);
  EXPECT_EQ(run->wait().out, "143\n");
}

TEST_F(Launcher, ASecondInterruptKillsAtOnce) {
  auto run = start_script(2, R"(
trap 'echo heard' INT
echo ready
while :; do sleep 0.05; done)",
                          {"--grace_period", "3600"});
  run->wait_for_output("ready", 2);
  run->signal(SIGINT);
  run->wait_for_output("heard", 2);
  run->wait_for_error(
      "accelerate launch: told to stop by SIGINT: workers have 1 h 00 min to end, Ctrl-C kills "
      "them\n");
  run->signal(SIGINT);
  EXPECT_EQ(run->wait().exit_code, 128 + SIGINT);
}

TEST_F(Launcher, ASignalSentTwiceInARowIsOneSignal) {
  // Two signals, not one that was sent twice before the launcher looked; and both within less than
  // a person needs to press a key again, which on a busy machine may take several tries.
  constexpr std::chrono::milliseconds kInARow{200};
  std::unique_ptr<LauncherRun> run;
  std::chrono::steady_clock::duration taken{};
  int tries = 0;
  do {
    ASSERT_LT(tries++, 20) << "this machine is too busy";
    run.reset();
    run = start_script(1, R"(
trap 'sleep 0.5; echo saved; exit 0' INT
echo ready
while :; do sleep 0.05; done)");
    run->wait_for_output("ready");
    const auto began = std::chrono::steady_clock::now();
    for (int times = 0; times < 2; ++times) {
      run->signal(SIGINT);
      ASSERT_TRUE(takes_interrupt(run->pid()));
    }
    taken = std::chrono::steady_clock::now() - began;
  } while (taken >= kInARow);
  const RunResult result = run->wait();
  EXPECT_THAT(result.out, HasSubstr("saved"));
  EXPECT_EQ(result.exit_code, 128 + SIGINT);
}

TEST_F(Launcher, SuspendsTheWorkersWithItself) {
  auto run = start_script(1, R"(echo "pid=$$."; exec sleep 600)");
  run->wait_for_output(".");
  const pid_t worker = std::stoi(run->out().substr(4));
  run->signal(SIGTSTP);
  EXPECT_TRUE(becomes(worker, true));
  EXPECT_TRUE(becomes(run->pid(), true));
  run->signal(SIGCONT);
  EXPECT_TRUE(becomes(worker, false));
  run->signal(SIGTERM);
  EXPECT_EQ(run->wait().exit_code, 128 + SIGTERM);
}

TEST_F(Launcher, WorkersAndWhatTheyStartedDieWithAKilledLauncher) {
  auto run = start_script(2, "sleep 600 & echo ready; sleep 600; echo never");
  run->wait_for_output("ready", 2);
  // Launcher, guard, two shells, two to four times sleep; one that is about to become another
  // program has no environment for a moment.
  const auto deadline = std::chrono::steady_clock::now() + kDeadline;
  while (processes().size() < 6) ASSERT_LT(std::chrono::steady_clock::now(), deadline);
  run->signal(SIGKILL);
  EXPECT_EQ(run->wait().exit_code, 128 + SIGKILL);
  expect_no_process_left();
}

TEST_F(LauncherEnd, WorkersDieWithAKilledLauncherThatLostItsGuard) {
  auto run = start_script(2, "echo ready; exec sleep 600");
  run->wait_for_output("ready", 2);
  const pid_t watching = guard();
  ASSERT_GT(watching, 0);
  EXPECT_EQ(kill(watching, SIGKILL), 0);
  run->signal(SIGKILL);
  EXPECT_EQ(run->wait().exit_code, 128 + SIGKILL);
  expect_no_process_left();
}

TEST_F(LauncherEnd, AProcessThatGotTheNumberOfALostGuardIsLeftAlone) {
  auto run = start_script(1, "trap 'exit 0' TERM; echo ready; while :; do sleep 0.05; done");
  run->wait_for_output("ready");
  const pid_t number = guard();
  ASSERT_GT(number, 0);
  ASSERT_EQ(kill(number, SIGKILL), 0);
  run->wait_for_error("accelerate launch: its guard, process " + std::to_string(number) +
                      ", was killed: ");
  const auto deadline = std::chrono::steady_clock::now() + kDeadline;
  while (kill(number, 0) == 0) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline) << "nobody reaped the guard";
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  const pid_t stranger = sleeper_with_pid(number);
  if (stranger < 0 && (errno == ENOSYS || errno == EPERM)) {
    GTEST_SKIP() << "cannot choose the number of a process: " << strerror(errno);
  }
  ASSERT_GT(stranger, 0) << strerror(errno);
  run->signal(SIGTERM);
  EXPECT_EQ(run->wait().exit_code, 128 + SIGTERM);
  int status = 0;
  kill(stranger, SIGTERM);  // too late if a SIGKILL is on its way
  waitpid(stranger, &status, 0);
  EXPECT_EQ(WTERMSIG(status), SIGTERM);
}

#if !ACCELERATE_TEST_ADDRESS_SANITIZER  // which opens pipes and files in the launcher itself
TEST_F(Launcher, AStopSignalIsHeardAlsoWhileTheKernelRefusesToPoll) {
  auto run = start_script(2, "echo ready; exec sleep 600");
  run->wait_for_output("ready", 2);
  // poll() may not watch more descriptors than a process may open.
  const rlimit none{.rlim_cur = 0, .rlim_max = 0};
  ASSERT_EQ(prlimit(run->pid(), RLIMIT_NOFILE, &none, nullptr), 0);
  run->signal(SIGTERM);
  EXPECT_EQ(run->wait().exit_code, 128 + SIGTERM);
}
#endif

TEST_F(Launcher, WhatAWorkerLeavesInItsGroupIsKilledWhenTheWorkerEnds) {
  const RunResult result = run_script(2, R"(
if [ $RANK = 0 ]; then
  sleep 600 &
  echo $! > "$0.pid"
  exit 0
fi
until [ -s "$0.pid" ]; do sleep 0.02; done
while kill -0 $(cat "$0.pid") 2> /dev/null; do sleep 0.02; done)");
  EXPECT_EQ(result.exit_code, 0);
}

TEST_F(Launcher, ABackgroundProcessThatHoldsTheOutputDoesNotKeepTheJobAlive) {
  const RunResult result = run_script(2, "sleep 600 & echo done");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out, "done\ndone\n");
}

TEST_F(Launcher, AProcessThatLeftItsSessionIsKilledAtTheEnd) {
  const RunResult result = run_script(2, R"(
setsid sh -c 'sleep 600 & touch "$0"; sleep 600' "$0.$RANK" &
until [ -e "$0.$RANK" ]; do sleep 0.02; done
echo done)");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out, "done\ndone\n");
  EXPECT_THAT(processes(), IsEmpty());  // at once: the launcher waits for them
}

TEST_F(Launcher, LeavesProcessesAloneThatWereThereBefore) {
  // The shell becomes the launcher, which so inherits a child that is none of its workers.
  const std::string script = folder_.write(
      "outer.sh", "sleep 600 & echo $! > \"$0.pid\"; exec \"$1\" launch --num_processes 1 true");
  const std::string command = "sh " + script + " " ACCELERATE_PROGRAM;
  ASSERT_EQ(system(command.c_str()), 0);
  pid_t before = 0;
  std::ifstream(script + ".pid") >> before;
  ASSERT_GT(before, 0);
  EXPECT_EQ(kill(before, SIGKILL), 0);
}

}  // namespace
}  // namespace accelerate::test
