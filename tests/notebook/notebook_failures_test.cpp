// Workers that fail, and calls that are refused.
#include <accelerate/accelerate.h>
#include <accelerate/notebook.h>
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <thread>
#include <vector>

#include "notebook/processes.h"
#include "notebook/shared_numbers.h"
#include "support/end_after_a_peer.h"

namespace accelerate::test {
namespace {

using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

int failing_rank() { return std::atoi(std::getenv("RANK")); }

constexpr auto kForEver = std::chrono::hours(1);

const NotebookOptions kTwoWorkers{.num_processes = 2, .cpu = true};

// What the launch throws; a failure if it throws nothing.
template <class Launch>
WorkerError error_of_workers(Launch launch) {
  try {
    launch();
  } catch (const WorkerError& error) {
    return error;
  }
  ADD_FAILURE() << "expected a WorkerError";
  return WorkerError({});
}

template <class Launch>
std::string usage_error(Launch launch) {
  try {
    launch();
  } catch (const UsageError& error) {
    return error.what();
  }
  ADD_FAILURE() << "expected a UsageError";
  return {};
}

// Whether the two processes end by themselves; if not they are killed, so that none is left.
bool both_end(SharedNumbers& pids) {
  const bool ended = comes_true([&] { return !is_running(pids[0]) && !is_running(pids[1]); });
  for (const size_t i : {0, 1}) {
    if (is_running(pids[i])) kill(pids[i], SIGKILL);
  }
  return ended;
}

TEST(NotebookFailure, AnExceptionComesBackWithItsTypeItsTextAndItsRank) {
  const WorkerError error = error_of_workers([] {
    notebook_launcher(
        [] {
          Accelerator accelerator({.cpu = true});
          if (accelerator.process_index() == 1) throw std::out_of_range("no such row");
          accelerator.wait_for_everyone();  // in vain
        },
        kTwoWorkers);
  });
  EXPECT_EQ(error.rank(), 1);
  EXPECT_STREQ(error.what(), "[rank 1 of 2] WorkerError: std::out_of_range: no such row");
}

TEST(NotebookFailure, AnErrorOfTheLibraryKeepsItsText) {
  const WorkerError error = error_of_workers([] {
    notebook_launcher(
        [] {
          Accelerator accelerator({.cpu = true});
          (void)accelerator.on_process(7, [] {});
        },
        kTwoWorkers);
  });
  EXPECT_THAT(error.what(), HasSubstr("WorkerError: UsageError: "));
  EXPECT_THAT(error.message(), StartsWith("UsageError: "));
}

// Tells when its text is asked for, which is when it has left the worker's function.
struct Cause : std::exception {
  explicit Cause(std::atomic<int>& told) : told_(told) {}
  const char* what() const noexcept override {
    told_ = 1;
    return "cause";
  }

 private:
  std::atomic<int>& told_;
};

TEST(NotebookFailure, TheFirstOfSeveralExceptionsIsTold) {
  const WorkerError error = error_of_workers([] {
    SharedNumbers stage;
    notebook_launcher(
        [&] {
          if (failing_rank() == 2) throw Cause(stage[0]);
          while (stage[0] == 0) std::this_thread::yield();
          throw std::runtime_error("consequence");
        },
        {.num_processes = 3, .cpu = true});
  });
  EXPECT_EQ(error.rank(), 2);
  EXPECT_THAT(error.message(), EndsWith("Cause: cause"));
}

TEST(NotebookFailure, AWorkerThatEndsAfterThoseThatItFailedStillNamesTheCause) {
  const WorkerError error = error_of_workers([] {
    SharedNumbers pids;
    notebook_launcher(
        [&] {
          EndAfterAPeer end;
          Accelerator accelerator({.cpu = true});
          pids[static_cast<size_t>(accelerator.process_index())] = getpid();
          accelerator.wait_for_everyone();
          if (accelerator.process_index() == 2) {
            end.peers = {pids[0], pids[1]};
            throw std::runtime_error("the cause");
          }
          accelerator.wait_for_everyone();
        },
        {.num_processes = 3, .cpu = true});
  });
  EXPECT_EQ(error.rank(), 2);
  EXPECT_THAT(error.message(), EndsWith("the cause"));
}

TEST(NotebookFailure, AKilledWorkerIsReportedWithItsSignal) {
  const WorkerError error = error_of_workers([] {
    notebook_launcher(
        [] {
          Accelerator accelerator({.cpu = true});
          if (accelerator.process_index() == 1) raise(SIGKILL);
          accelerator.wait_for_everyone();
        },
        kTwoWorkers);
  });
  EXPECT_EQ(error.rank(), 1);
  EXPECT_EQ(error.message(), "the worker was killed by signal 9 (Killed)");
}

TEST(NotebookFailure, AWorkerThatLeavesByItselfIsAFailure) {
  const WorkerError error = error_of_workers([] {
    notebook_launcher(
        [] {
          if (failing_rank() == 0) _exit(0);
          std::this_thread::sleep_for(kForEver);
        },
        kTwoWorkers);
  });
  EXPECT_STREQ(error.what(),
               "[rank 0 of 2] WorkerError: the worker exited with status 0 before its function "
               "returned");
}

TEST(NotebookFailure, WorkersThatDoNotEndWhenAskedAreKilledAfterTheGrace) {
  SharedNumbers pids;
  const WorkerError error = error_of_workers([&] {
    notebook_launcher(
        [&] {
          if (failing_rank() == 1) {
            while (pids[0] == 0) std::this_thread::yield();
            throw std::runtime_error("over");
          }
          signal(SIGTERM, SIG_IGN);
          pids[0] = getpid();
          std::this_thread::sleep_for(kForEver);
        },
        {.num_processes = 2, .cpu = true, .grace = std::chrono::milliseconds(50)});
  });
  EXPECT_EQ(error.message(), "std::runtime_error: over");
  EXPECT_FALSE(is_running(pids[0]));
}

TEST(NotebookFailure, WhatAWorkerStartedEndsWithIt) {
  SharedNumbers pids;
  notebook_launcher(
      [&] {
        const pid_t child = fork();
        if (child == 0) {
          pids[static_cast<size_t>(failing_rank())] = getpid();
          execlp("sleep", "sleep", "3600", nullptr);
          _exit(127);
        }
        while (pids[static_cast<size_t>(failing_rank())] == 0) std::this_thread::yield();
      },
      kTwoWorkers);
  EXPECT_TRUE(both_end(pids));
}

TEST(NotebookFailure, WorkersDieWithTheirCaller) {
  SharedNumbers pids;
  const pid_t caller = fork();
  ASSERT_GE(caller, 0);
  if (caller == 0) {
    notebook_launcher(
        [&] {
          signal(SIGTERM, SIG_IGN);
          pids[static_cast<size_t>(failing_rank())] = getpid();
          std::this_thread::sleep_for(kForEver);
        },
        kTwoWorkers);
    _exit(1);
  }
  ASSERT_TRUE(comes_true([&] { return pids[0] != 0 && pids[1] != 0; }));
  kill(caller, SIGKILL);
  EXPECT_EQ(waitpid(caller, nullptr, 0), caller);
  EXPECT_TRUE(both_end(pids));
}

TEST(NotebookFailure, AFailedLaunchIsRepeatedAsOftenAsAsked) {
  SharedNumbers runs;
  const auto fail_until = [&](int attempt) {
    return [&runs, attempt] {
      Accelerator accelerator({.cpu = true});
      const int run = accelerator.is_main_process() ? ++runs[0] : 0;
      const int agreed = accelerator.broadcast_object(run);
      if (agreed < attempt) throw std::runtime_error("run " + std::to_string(agreed));
      return agreed;
    };
  };
  EXPECT_THAT(
      notebook_launcher(fail_until(3), {.num_processes = 2, .cpu = true, .max_restarts = 2}),
      ElementsAre(3, 3));
  runs[0] = 0;
  const WorkerError error = error_of_workers([&] {
    notebook_launcher(fail_until(3), {.num_processes = 2, .cpu = true, .max_restarts = 1});
  });
  EXPECT_EQ(error.message(), "std::runtime_error: run 2");
}

TEST(NotebookRefusal, AWorkerStartsNoWorkers) {
  const WorkerError error =
      error_of_workers([] { notebook_launcher([] { debug_launcher([] {}); }, kTwoWorkers); });
  EXPECT_THAT(error.message(),
              StartsWith("UsageError: debug_launcher was called while a launch is under way in "
                         "this process"));
  const std::string in_place = usage_error([] {
    notebook_launcher([] { notebook_launcher([] {}, kTwoWorkers); }, {.num_processes = 1});
  });
  EXPECT_THAT(in_place, HasSubstr("notebook_launcher was called while a launch is under way"));
  EXPECT_EQ(notebook_launcher([] { return 1; }, kTwoWorkers).size(), 2u);  // and is over now
}

TEST(NotebookRefusal, ARankOfAJobStartsNoWorkers) {
  const std::vector<std::pair<const char*, const char*>> variables = {
      {"RANK", "1"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "localhost"}, {"MASTER_PORT", "29500"}};
  for (const auto& [name, value] : variables) setenv(name, value, 1);
  const std::string text = usage_error([] { notebook_launcher([] {}, kTwoWorkers); });
  for (const auto& [name, value] : variables) unsetenv(name);
  EXPECT_THAT(text, HasSubstr("notebook_launcher cannot start workers: this process is rank 1 of 4 "
                              "already"));
}

TEST(NotebookRefusal, OptionsThatMakeNoSenseAreNamed) {
  const auto refused = [](const NotebookOptions& options) {
    return usage_error([&] { notebook_launcher([] {}, options); });
  };
  EXPECT_THAT(refused({.num_processes = 0}), HasSubstr("notebook_launcher: num_processes is 0"));
  EXPECT_THAT(refused({.num_processes = 2, .num_nodes = 2, .node_rank = 2}),
              HasSubstr("node_rank is 2 of num_nodes 2"));
  EXPECT_THAT(refused({.num_processes = 2, .num_nodes = 2, .max_restarts = 1}),
              HasSubstr("max_restarts needs all workers on one node"));
  EXPECT_THAT(refused({.num_processes = 2, .use_port = 70000}),
              HasSubstr("use_port is not a port number"));
  EXPECT_THAT(refused({.num_processes = 2, .num_cpu_threads_per_process = 0}),
              HasSubstr("num_cpu_threads_per_process is not positive"));
}

}  // namespace
}  // namespace accelerate::test
