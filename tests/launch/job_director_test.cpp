#include "launch/remote/job_director.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

namespace accelerate::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

class Directing : public ::testing::Test {
 protected:
  void begin(int machines, int max_restarts = 0) {
    plan_.num_machines = machines;
    plan_.num_processes = 2 * machines;
    plan_.max_restarts = max_restarts;
    plan_.main_address = "10.0.0.1";
    plan_.run_id = "run";
    director_ = std::make_unique<JobDirector>(
        plan_, [](int attempt) { return 31000 + attempt; }, now_);
    director_->join(0, "a");
  }

  // What was ordered since the last call: "0 start 31000", "1 stop 15", "0 finish 3".
  std::vector<std::string> orders() {
    std::vector<std::string> texts;
    first_text_.clear();
    while (const auto next = director_->next_order()) {
      const auto& [machine, order] = *next;
      std::string text = std::to_string(machine);
      switch (order.kind) {
        case Order::Kind::kStart:
          text += " start " + std::to_string(order.main_port);
          break;
        case Order::Kind::kStop:
          text += " stop " + std::to_string(order.signal);
          break;
        case Order::Kind::kKill:
          text += " kill";
          break;
        case Order::Kind::kNote:
          text += " note";
          break;
        case Order::Kind::kFinish:
          text += " finish " + std::to_string(order.exit_code);
          break;
      }
      if (texts.empty()) first_text_ = order.text;
      texts.push_back(text);
      last_text_ = order.text;
    }
    return texts;
  }

  static WorkerEnd end_of(int rank, int status, WorkerFate fate) {
    return {.rank = rank,
            .host = "b",
            .wait_status = status << 8,
            .after = milliseconds(10 + rank),
            .fate = fate};
  }
  void fail(int machine, int rank, int status, int attempt = 0) {
    director_->handle(machine,
                      {.kind = MachineReport::Kind::kFailed,
                       .attempt = attempt,
                       .ends = {end_of(rank, status, WorkerFate::kFailed)}},
                      now_);
  }
  void end(int machine, std::vector<WorkerEnd> ends = {}, int attempt = 0) {
    director_->handle(
        machine, {.kind = MachineReport::Kind::kEnded, .attempt = attempt, .ends = std::move(ends)},
        now_);
  }
  void signal(int machine, int number) {
    director_->handle(machine, {.kind = MachineReport::Kind::kSignal, .signal = number}, now_);
  }

  MachinePlan plan_;
  JobDirector::Clock::time_point now_ = JobDirector::Clock::now();
  std::unique_ptr<JobDirector> director_;
  std::string first_text_;
  std::string last_text_;
};

TEST_F(Directing, OneMachineBeginsAtOnceAndEndsWithItsWorkers) {
  begin(1);
  EXPECT_THAT(orders(), ElementsAre("0 start 31000"));
  end(0, {end_of(0, 0, WorkerFate::kSucceeded), end_of(1, 0, WorkerFate::kSucceeded)});
  EXPECT_THAT(orders(), ElementsAre("0 finish 0"));
  EXPECT_EQ(last_text_, "");
}

TEST_F(Directing, MachinesBeginWhenAllHaveCome) {
  begin(3);
  director_->join(2, "c");
  EXPECT_THAT(orders(), IsEmpty());
  EXPECT_THAT(director_->missing_machines(), ElementsAre(1));
  director_->join(1, "b");
  EXPECT_THAT(orders(), ElementsAre("0 start 31000", "1 start 31000", "2 start 31000"));
}

TEST_F(Directing, AMachineThatDoesNotComeIsNamedAfterTheTimeout) {
  begin(3);
  director_->join(2, "c");
  director_->remember_refusal("machine 1 (b) was started with --num_processes 7");
  EXPECT_THAT(orders(), ElementsAre("0 note"));
  EXPECT_EQ(last_text_,
            "accelerate launch: refused: machine 1 (b) was started with --num_processes 7\n");
  now_ += plan_.join_timeout - milliseconds(1);
  director_->handle_time(now_);
  EXPECT_THAT(orders(), IsEmpty());
  now_ += milliseconds(1);
  director_->handle_time(now_);
  EXPECT_THAT(orders(), ElementsAre("0 finish 75", "2 finish 75"));
  EXPECT_THAT(last_text_, StartsWith("error: machine 1 did not connect within 5 min 00 s\n"
                                     "  refused: machine 1 (b) was started with"));
}

TEST_F(Directing, BehindSshOrSrunNobodyIsToldToRunLaunchersByHand) {
  plan_.is_agent = true;
  plan_.main_port = 29500;
  begin(2);
  now_ += plan_.join_timeout;
  director_->handle_time(now_);
  EXPECT_THAT(orders(), ElementsAre("0 finish 75"));
  EXPECT_EQ(last_text_,
            "error: machine 1 did not connect within 5 min 00 s\n"
            "  try  see the messages about them above: each must reach this machine at "
            "10.0.0.1:29500 (--main_process_ip names another address of it)\n");
}

TEST_F(Directing, AFailureStopsAllMachinesAndItsStatusBecomesTheirs) {
  begin(2);
  director_->join(1, "b");
  orders();
  fail(1, 3, 7);
  EXPECT_THAT(orders(), ElementsAre("0 stop 0", "1 stop 0"));
  end(0, {end_of(0, 15, WorkerFate::kStopped), end_of(1, 15, WorkerFate::kStopped)});
  EXPECT_THAT(orders(), IsEmpty());
  end(1, {end_of(2, 15, WorkerFate::kStopped), end_of(3, 7, WorkerFate::kFailed)});
  EXPECT_THAT(orders(), ElementsAre("0 finish 7", "1 finish 7"));
}

TEST_F(Directing, TheCauseIsToldBeforeTheOthersHaveEndedIfTheyTakeTheirTime) {
  begin(2);
  director_->join(1, "b");
  fail(1, 3, 7);
  orders();
  EXPECT_EQ(director_->deadline(), now_ + JobDirector::kPatienceBeforeWord);
  director_->handle_time(now_ + JobDirector::kPatienceBeforeWord - milliseconds(1));
  EXPECT_THAT(orders(), IsEmpty());
  director_->handle_time(now_ + JobDirector::kPatienceBeforeWord);
  EXPECT_THAT(orders(), ElementsAre("0 note", "1 note"));
  EXPECT_THAT(last_text_, StartsWith("error: rank 3 of 4 on b exited with status 7"));
  EXPECT_EQ(director_->deadline(), std::nullopt);
  end(1, {end_of(2, 15, WorkerFate::kStopped), end_of(3, 7, WorkerFate::kFailed)});
  end(0, {end_of(0, 15, WorkerFate::kStopped), end_of(1, 15, WorkerFate::kStopped)});
  EXPECT_THAT(orders(), ElementsAre("0 finish 7", "1 finish 7"));
  EXPECT_EQ(first_text_, "  ranks 0, 1 and 2 were stopped\n");
  EXPECT_EQ(last_text_, "");
}

TEST_F(Directing, AnotherCauseThatComesToLightLaterIsToldInFull) {
  begin(1);
  WorkerEnd observer = end_of(0, 1, WorkerFate::kFailed);
  observer.unasked = true;
  observer.exception = "CommError: rank 1 is gone";
  director_->handle(0, {.kind = MachineReport::Kind::kFailed, .ends = {observer}}, now_);
  director_->handle_time(now_ + JobDirector::kPatienceBeforeWord);
  orders();
  EXPECT_THAT(last_text_, StartsWith("error: rank 0 of 2"));
  WorkerEnd culprit = end_of(1, 9, WorkerFate::kFailed);
  culprit.unasked = true;
  end(0, {observer, culprit});
  EXPECT_THAT(orders(), ElementsAre("0 finish 9"));
  EXPECT_THAT(last_text_, StartsWith("error: rank 1 of 2"));
}

TEST_F(Directing, WhoToldItToStopHearsHowToEndItAtOnce) {
  begin(1);
  signal(0, SIGINT);
  orders();
  director_->handle_time(now_ + JobDirector::kPatienceBeforeWord);
  EXPECT_THAT(orders(), ElementsAre("0 note"));
  EXPECT_EQ(last_text_,
            "accelerate launch: told to stop by SIGINT: workers have 30.0 s to end, Ctrl-C kills "
            "them\n");
}

TEST_F(Directing, AFailedJobBeginsAnewOnAllMachinesAtANewPort) {
  begin(2, 1);
  director_->join(1, "b");
  orders();
  fail(1, 3, 7);
  end(0);
  end(1);
  EXPECT_THAT(orders(), ElementsAre("0 stop 0", "1 stop 0", "0 note", "1 note", "0 start 31001",
                                    "1 start 31001"));
  fail(0, 0, 9, 1);
  end(0, {}, 1);
  end(1, {}, 1);
  EXPECT_THAT(orders(), ElementsAre("0 stop 0", "1 stop 0", "0 finish 9", "1 finish 9"));
}

TEST_F(Directing, WordsAboutAnEarlierAttemptDoNotCount) {
  begin(1, 2);
  orders();
  fail(0, 0, 7);
  end(0);
  orders();
  fail(0, 1, 7, 0);
  end(0, {}, 0);
  EXPECT_THAT(orders(), IsEmpty());
}

TEST_F(Directing, ALostMachineStopsTheOthers) {
  begin(2);
  director_->join(1, "b");
  orders();
  director_->lose(1, "its connection ended", now_);
  EXPECT_THAT(orders(), ElementsAre("0 stop 0"));
  end(0);
  EXPECT_THAT(orders(), ElementsAre("0 finish 75"));
  EXPECT_THAT(last_text_, HasSubstr("machine 1 (b) was lost: its connection ended"));
}

TEST_F(Directing, ALostMachineMayComeBackForTheRestart) {
  begin(2, 1);
  director_->join(1, "b");
  orders();
  director_->lose(1, "no sign of life", now_);
  end(0);
  EXPECT_THAT(orders(), ElementsAre("0 stop 0", "0 note"));
  director_->join(1, "b");
  EXPECT_THAT(orders(), ElementsAre("0 start 31001", "1 start 31001"));
}

TEST_F(Directing, ALostMachineThatDoesNotComeBackEndsTheJobAfterTheTimeout) {
  begin(2, 1);
  director_->join(1, "b");
  director_->lose(1, "no sign of life", now_);
  end(0);
  orders();
  director_->handle_time(now_ + plan_.join_timeout);
  EXPECT_THAT(orders(), ElementsAre("0 finish 75"));
  EXPECT_THAT(last_text_, HasSubstr("machine 1 (b) was lost: no sign of life"));
}

TEST_F(Directing, AStopSignalAnywhereStopsAllAndIsNoReasonToBeginAnew) {
  begin(2, 5);
  director_->join(1, "b");
  orders();
  signal(1, SIGTERM);
  EXPECT_THAT(orders(), ElementsAre("0 stop 15", "1 stop 15"));
  end(0);
  end(1);
  EXPECT_THAT(orders(), ElementsAre("0 finish 143", "1 finish 143"));
}

TEST_F(Directing, ASecondInterruptKillsEverywhere) {
  begin(2);
  director_->join(1, "b");
  orders();
  signal(0, SIGINT);
  orders();
  signal(0, SIGINT);
  EXPECT_THAT(orders(), ElementsAre("0 kill", "1 kill"));
}

TEST_F(Directing, OneInterruptThatReachesAllLaunchersIsOne) {
  begin(2);
  director_->join(1, "b");
  orders();
  signal(0, SIGINT);
  signal(1, SIGINT);
  EXPECT_THAT(orders(), ElementsAre("0 stop 2", "1 stop 2"));
  signal(1, SIGINT);
  EXPECT_THAT(orders(), ElementsAre("0 kill", "1 kill"));
}

TEST_F(Directing, AfterASecondInterruptAMachineThatDoesNotAnswerIsNotWaitedFor) {
  begin(2);
  director_->join(1, "b");
  signal(0, SIGINT);
  signal(0, SIGINT);
  end(0);
  orders();
  EXPECT_EQ(director_->deadline(), now_ + JobDirector::kPatienceAfterKill);
  director_->handle_time(now_ + JobDirector::kPatienceAfterKill - milliseconds(1));
  EXPECT_THAT(orders(), IsEmpty());
  director_->handle_time(now_ + JobDirector::kPatienceAfterKill);
  EXPECT_THAT(orders(), ElementsAre("0 finish 130", "1 finish 130"));
}

TEST_F(Directing, AfterASecondInterruptTheWorkersOfThisMachineAreStillWaitedFor) {
  begin(2);
  director_->join(1, "b");
  signal(0, SIGINT);
  signal(0, SIGINT);
  end(1);
  orders();
  director_->handle_time(now_ + 2 * JobDirector::kPatienceAfterKill);
  EXPECT_THAT(orders(), IsEmpty());
  end(0);
  EXPECT_THAT(orders(), ElementsAre("0 finish 130", "1 finish 130"));
}

TEST_F(Directing, RefusalsAreToldOnceEachAndNotWithoutBound) {
  begin(2);
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 1000; ++i) {
      director_->remember_refusal("reason " + std::to_string(i) + ".");
    }
  }
  director_->handle_time(now_ + plan_.join_timeout);
  orders();
  EXPECT_THAT(last_text_, HasSubstr("  refused: reason 0.\n"));
  EXPECT_THAT(last_text_, HasSubstr("  refused: reason 7.\n  and others for other reasons\n"));
  EXPECT_EQ(last_text_.find("reason 8."), std::string::npos);
}

TEST_F(Directing, AStopSignalWhileMachinesAreAwaitedEndsTheWait) {
  begin(2);
  signal(0, SIGINT);
  EXPECT_THAT(orders(), ElementsAre("0 finish 130"));
}

}  // namespace
}  // namespace accelerate::launch
