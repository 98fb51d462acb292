// What workers leave behind, and workers that are not as they should be.
#include <accelerate/accelerate.h>
#include <accelerate/notebook.h>
#include <gmock/gmock.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <thread>

#include "notebook/processes.h"
#include "notebook/shared_numbers.h"

namespace accelerate::test {
namespace {

using testing::StartsWith;

size_t leaving_rank() { return static_cast<size_t>(std::atoi(std::getenv("RANK"))); }

const NotebookOptions kTwo{.num_processes = 2, .cpu = true};

// How long a process that nobody ends is there: long enough to be seen, not for ever.
constexpr unsigned kLifeOfALeftover = 180;
// In place of its number, if it lived as long.
constexpr int kNobodyEndedIt = -1;

// The text of the WorkerError that the launch throws; empty if it throws none.
template <class Launch>
std::string worker_error(Launch launch) {
  try {
    launch();
  } catch (const WorkerError& error) {
    return error.message();
  }
  return {};
}

// A child of this process in a session of its own; returns when it has left.
void leave_behind(std::atomic<int>& pid) {
  if (fork() == 0) {
    setsid();
    pid = getpid();
    sleep(kLifeOfALeftover);
    pid = kNobodyEndedIt;
    _exit(0);
  }
  while (pid == 0) std::this_thread::yield();
}

// Whether the first two processes were ended by somebody; ends those that run.
bool both_were_ended(SharedNumbers& pids) {
  bool ended = true;
  for (const size_t i : {0, 1}) {
    const pid_t pid = pids[i];
    if (pid > 0 && !is_running(pid)) continue;
    ended = false;
    if (pid > 0) kill(pid, SIGKILL);
  }
  return ended;
}

// New threads of this process, and of those forked from it, get stacks that no machine has room
// for.
class NoRoomForThreads {
 public:
  NoRoomForThreads() {
    pthread_getattr_default_np(&before_);
    pthread_attr_t huge;
    pthread_attr_init(&huge);
    pthread_attr_setstacksize(&huge, size_t{1} << 50);
    EXPECT_EQ(pthread_setattr_default_np(&huge), 0);
    pthread_attr_destroy(&huge);
  }
  ~NoRoomForThreads() {
    pthread_setattr_default_np(&before_);
    pthread_attr_destroy(&before_);
  }
  NoRoomForThreads(const NoRoomForThreads&) = delete;
  NoRoomForThreads& operator=(const NoRoomForThreads&) = delete;

 private:
  pthread_attr_t before_{};
};

// It must not go on as a second copy of the program.
TEST(NotebookLeftovers, AWorkerWithoutRoomForItsThreadIsAFailureAndEnds) {
  SharedNumbers numbers;
  const NoRoomForThreads no_room;
  const std::string text = worker_error([] { notebook_launcher([] {}, kTwo); });
  ++numbers[0];
  EXPECT_EQ(text, "std::system_error: Resource temporarily unavailable");
  EXPECT_EQ(numbers[0], 1);
}

TEST(NotebookLeftovers, AProcessInASessionOfItsOwnDoesNotHoldTheLaunchUpAndEndsWithIt) {
  SharedNumbers pids;
  notebook_launcher([&] { leave_behind(pids[leaving_rank()]); }, kTwo);
  EXPECT_TRUE(both_were_ended(pids));
}

TEST(NotebookLeftovers, AProcessInASessionOfItsOwnEndsWithAKilledWorker) {
  SharedNumbers pids;
  const std::string text = worker_error([&] {
    notebook_launcher(
        [&] {
          leave_behind(pids[leaving_rank()]);
          while (pids[0] == 0 || pids[1] == 0) std::this_thread::yield();
          raise(SIGKILL);
        },
        kTwo);
  });
  EXPECT_EQ(text, "the worker was killed by signal 9 (Killed)");
  EXPECT_TRUE(both_were_ended(pids));
}

TEST(NotebookLeftovers, AProcessInASessionOfItsOwnEndsWithAKilledCaller) {
  SharedNumbers pids;
  const pid_t caller = fork();
  ASSERT_GE(caller, 0);
  if (caller == 0) {
    notebook_launcher(
        [&] {
          leave_behind(pids[leaving_rank()]);
          sleep(kLifeOfALeftover);
        },
        kTwo);
    _exit(1);
  }
  ASSERT_TRUE(comes_true([&] { return pids[0] != 0 && pids[1] != 0; }));
  kill(caller, SIGKILL);
  EXPECT_EQ(waitpid(caller, nullptr, 0), caller);
  EXPECT_TRUE(comes_true([&] { return !is_running(pids[0]) && !is_running(pids[1]); }));
  EXPECT_TRUE(both_were_ended(pids));
}

TEST(NotebookLeftovers, ProcessesOfTheCallerAreLeftAlone) {
  SharedNumbers numbers;
  pid_t before = fork();
  if (before == 0) _exit(static_cast<int>(sleep(kLifeOfALeftover)));
  pid_t during = 0;
  std::thread other([&] {
    while (numbers[0] == 0) std::this_thread::yield();
    during = fork();
    if (during == 0) _exit(static_cast<int>(sleep(kLifeOfALeftover)));
    numbers[1] = 1;
  });
  notebook_launcher(
      [&] {
        numbers[0] = 1;
        while (numbers[1] == 0) std::this_thread::yield();
      },
      kTwo);
  other.join();
  for (const pid_t pid : {before, during}) {
    EXPECT_TRUE(is_running(pid));
    kill(pid, SIGKILL);
    EXPECT_EQ(waitpid(pid, nullptr, 0), pid);
  }
}

TEST(NotebookLeftovers, AWorkerThatClosesAllDescriptorsRunsToItsEnd) {
  SharedNumbers ran;
  const std::string text = worker_error([&] {
    notebook_launcher(
        [&] {
          close_range(3, ~0U, 0);
          std::this_thread::sleep_for(std::chrono::milliseconds(100));
          ran[leaving_rank()] = 1;
          while (ran[0] == 0 || ran[1] == 0) std::this_thread::yield();
        },
        kTwo);
  });
  EXPECT_EQ(ran[0] + ran[1], 2);
  EXPECT_THAT(text, StartsWith("what the worker's function returned or threw is lost"));
}

// Its workers would be reaped by the kernel, and nobody could tell how they ended.
TEST(NotebookLeftovers, TheEndOfAWorkerIsKnownWhereTheProgramIgnoresItsChildren) {
  const auto before = signal(SIGCHLD, SIG_IGN);
  const std::string text = worker_error([] {
    notebook_launcher(
        [] {
          if (leaving_rank() == 1) raise(SIGKILL);
          sleep(kLifeOfALeftover);
        },
        kTwo);
  });
  signal(SIGCHLD, before);
  EXPECT_EQ(text, "the worker was killed by signal 9 (Killed)");
}

}  // namespace
}  // namespace accelerate::test
