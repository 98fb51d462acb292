// When a job with a range of machines begins, and which side of a cut network does not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "launch/remote/job_director.h"

namespace accelerate::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class RangeDirecting : public ::testing::Test {
 protected:
  using Loss = JobDirector::Loss;

  void begin(int least, int most,
             const std::optional<JobDirector::Inheritance>& inheritance = std::nullopt) {
    plan_.min_machines = least;
    plan_.num_machines = most;
    plan_.num_processes = 2 * most;
    plan_.max_restarts = 5;
    plan_.main_address = "10.0.0.1";
    director_ = std::make_unique<JobDirector>(
        plan_, [](int attempt) { return 31000 + attempt; }, now_, inheritance);
    director_->join(0, "a", "10.0.0.1");
  }
  void join(int machine) {
    director_->join(machine, std::string(1, static_cast<char>('a' + machine)),
                    "10.0.0." + std::to_string(machine + 1));
  }
  // Those of `machines` that run end their workers; the others were lost before.
  void end_on(const std::vector<int>& machines, int attempt) {
    for (const int machine : machines) {
      director_->handle(machine, {.kind = MachineReport::Kind::kEnded, .attempt = attempt}, now_);
    }
  }
  void pass(milliseconds time) {
    now_ += time;
    director_->handle_time(now_);
  }
  // "0 as 0 of 3", the machines that begin, in their order; the last start is in start_.
  std::vector<std::string> starts() {
    std::vector<std::string> texts;
    while (const auto next = director_->next_order()) {
      const auto& [machine, order] = *next;
      if (order.kind == Order::Kind::kNote) notes_ += order.text;
      if (order.kind == Order::Kind::kFinish) texts.push_back("finish");
      if (order.kind != Order::Kind::kStart) continue;
      start_ = order;
      texts.push_back(std::to_string(machine) + " as " + std::to_string(order.place) + " of " +
                      std::to_string(order.machines));
    }
    return texts;
  }

  MachinePlan plan_;
  JobDirector::Clock::time_point now_ = JobDirector::Clock::now();
  std::unique_ptr<JobDirector> director_;
  Order start_;
  std::string notes_;
};

TEST_F(RangeDirecting, BeginsAtOnceWhenAllHaveComeAndAfterTheLastCallWithFewer) {
  begin(2, 3);
  EXPECT_THAT(starts(), IsEmpty());
  join(2);
  pass(milliseconds(0));
  pass(plan_.last_call - milliseconds(1));
  EXPECT_THAT(starts(), IsEmpty());
  EXPECT_EQ(director_->deadline(), now_ + milliseconds(1));
  pass(milliseconds(1));
  EXPECT_THAT(starts(), ElementsAre("0 as 0 of 2", "2 as 1 of 2"));
  EXPECT_THAT(notes_, HasSubstr("going on with 2 of 3 machines, without machine 1\n"));
  ASSERT_EQ(start_.roster.size(), 2U);
  EXPECT_EQ(start_.roster[1].machine, 2);
  EXPECT_EQ(start_.roster[1].address, "10.0.0.3");

  begin(2, 3);
  join(1);
  join(2);
  EXPECT_THAT(starts(), ElementsAre("0 as 0 of 3", "1 as 1 of 3", "2 as 2 of 3"));
}

TEST_F(RangeDirecting, BeginsAgainAtOnceWithThoseThatWereNotLost) {
  begin(1, 3);
  join(1);
  join(2);
  starts();
  director_->lose(1, "its connection ended", now_);
  end_on({0, 2}, 0);
  EXPECT_THAT(starts(), ElementsAre("0 as 0 of 2", "2 as 1 of 2"));
  EXPECT_EQ(start_.attempt, 1);
  join(1);
  EXPECT_THAT(starts(), IsEmpty());
  EXPECT_THAT(notes_, HasSubstr("machine 1 (b) waits for the next restart\n"));
  director_->handle(2,
                    {.kind = MachineReport::Kind::kFailed,
                     .attempt = 1,
                     .ends = {{.rank = 2, .wait_status = 3 << 8, .fate = WorkerFate::kFailed}}},
                    now_);
  end_on({0, 2}, 1);
  EXPECT_THAT(starts(), ElementsAre("0 as 0 of 3", "1 as 1 of 3", "2 as 2 of 3"));
}

// The other two may go on by themselves: whether they do, this side cannot know.
TEST_F(RangeDirecting, TheSmallerSideOfACutNetworkDoesNotGoOn) {
  begin(1, 3);
  join(1);
  join(2);
  starts();
  director_->lose(1, "no sign of life", now_, Loss::kSilent);
  director_->lose(2, "no sign of life", now_, Loss::kSilent);
  end_on({0}, 0);
  pass(plan_.last_call * 2);
  EXPECT_THAT(starts(), IsEmpty());
  join(2);  // the network is back
  EXPECT_THAT(starts(), ElementsAre("0 as 0 of 2", "2 as 1 of 2"));
}

TEST_F(RangeDirecting, TheLargerSideOfACutNetworkGoesOn) {
  begin(1, 3);
  join(1);
  join(2);
  starts();
  director_->lose(1, "no sign of life", now_, Loss::kSilent);
  end_on({0, 2}, 0);
  EXPECT_THAT(starts(), ElementsAre("0 as 0 of 2", "2 as 1 of 2"));
}

TEST_F(RangeDirecting, OfTwoEqualSidesNoneGoesOn) {
  begin(1, 2);
  join(1);
  starts();
  director_->lose(1, "no sign of life", now_, Loss::kSilent);
  end_on({0}, 0);
  pass(plan_.last_call * 2);
  EXPECT_THAT(starts(), IsEmpty());

  begin(1, 2);
  join(1);
  starts();
  director_->lose(1, "its connection ended", now_);  // there is no other side
  end_on({0}, 0);
  EXPECT_THAT(starts(), ElementsAre("0 as 0 of 1"));
}

TEST_F(RangeDirecting, ASuccessorWaitsForTheOthersOfTheAttemptBefore) {
  begin(2, 4, JobDirector::Inheritance{.attempt = 3, .machines = {0, 2, 3}});
  pass(milliseconds(0));
  join(2);
  EXPECT_THAT(starts(), IsEmpty());
  join(3);
  EXPECT_THAT(starts(), ElementsAre("0 as 0 of 3", "2 as 1 of 3", "3 as 2 of 3"));
  EXPECT_EQ(start_.attempt, 3);
}

TEST_F(RangeDirecting, ASuccessorOfASilentMainMachineNeedsMoreThanHalf) {
  begin(1, 2, JobDirector::Inheritance{.attempt = 1, .machines = {0}, .main_has_ended = false});
  pass(plan_.last_call * 2);
  EXPECT_THAT(starts(), IsEmpty());
  begin(1, 2, JobDirector::Inheritance{.attempt = 1, .machines = {0}, .main_has_ended = true});
  pass(milliseconds(0));
  EXPECT_THAT(starts(), ElementsAre("0 as 0 of 1"));
}

TEST_F(RangeDirecting, FewerThanTheLeastEndTheJobWhenTheTimeIsOver) {
  begin(3, 4);
  join(1);
  pass(plan_.join_timeout);
  EXPECT_THAT(starts(), ElementsAre("finish", "finish"));
}

}  // namespace
}  // namespace accelerate::launch
