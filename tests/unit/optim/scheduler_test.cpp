// Schedulers where recorded rates say nothing: misuse, combinations, saved state, pace.
#include <accelerate/errors.h>
#include <accelerate/prepared_scheduler.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <cstdlib>
#include <limits>

#include "support/training_doubles.h"

namespace accelerate {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pointwise;
using testing::ThrowsMessage;

// Before the first line is logged: the level is read once.
[[maybe_unused]] const int kLevel = setenv("ACCELERATE_LOG_LEVEL", "info", 1);

torch::optim::SGD sgd_of(std::vector<double> rates) {
  std::vector<torch::optim::OptimizerParamGroup> groups;
  for (const double rate : rates) {
    groups.emplace_back(
        std::vector<at::Tensor>{torch::zeros({1}).requires_grad_()},
        std::make_unique<torch::optim::SGDOptions>(torch::optim::SGDOptions(rate).momentum(0.9)));
  }
  return torch::optim::SGD(groups, torch::optim::SGDOptions(rates[0]).momentum(0.9));
}

double rate_of(torch::optim::Optimizer& optimizer, size_t group = 0) {
  return optimizer.param_groups()[group].options().get_lr();
}

// The rate after the constructor and after each of `steps` steps.
std::vector<double> course(torch::optim::Optimizer& optimizer, Scheduler& scheduler, int steps) {
  std::vector<double> rates{rate_of(optimizer)};
  for (int step = 0; step < steps; ++step) {
    scheduler.step();
    rates.push_back(rate_of(optimizer));
  }
  return rates;
}

testing::Matcher<std::vector<double>> near(const std::vector<double>& expected) {
  return Pointwise(testing::DoubleNear(1e-12), expected);
}

TEST(GetScheduler, SaysWhichOptionIsMissing) {
  auto sgd = sgd_of({1.0});
  EXPECT_THAT([&] { get_scheduler("linear", sgd, {.warmup_steps = 1}); },
              ThrowsMessage<UsageError>(HasSubstr("linear needs training_steps\n"
                                                  "  at   learning-rate schedule\n"
                                                  "  try  pass {.training_steps = ...}")));
  EXPECT_EQ(rate_of(sgd), 1.0);
}

TEST(GetScheduler, SaysWhichOptionIsOutOfPlace) {
  auto sgd = sgd_of({1.0});
  EXPECT_THAT(
      [&] { get_scheduler("cosine", sgd, {.warmup_steps = 1, .training_steps = 2, .power = 2.0}); },
      ThrowsMessage<UsageError>(HasSubstr("cosine takes no power")));
}

TEST(GetScheduler, RefusesNegativeSteps) {
  auto sgd = sgd_of({1.0});
  EXPECT_THAT([&] { get_scheduler("cosine", sgd, {.warmup_steps = -1, .training_steps = 5}); },
              ThrowsMessage<UsageError>(HasSubstr("warmup_steps must be 0 or more, got -1")));
  EXPECT_THAT([&] { get_scheduler("linear", sgd, {.warmup_steps = 1, .training_steps = -5}); },
              ThrowsMessage<UsageError>(HasSubstr("training_steps must be 0 or more, got -5")));
}

TEST(GetScheduler, ListsTheNames) {
  auto sgd = sgd_of({1.0});
  EXPECT_THAT([&] { get_scheduler("cosin", sgd); },
              ThrowsMessage<UsageError>(HasSubstr("unknown schedule 'cosin'\n"
                                                  "  at   learning-rate schedule\n"
                                                  "  try  use one of linear, cosine, ")));
}

TEST(Scheduler, RefusesAScheduleThatIsAtWorkAlready) {
  auto sgd = sgd_of({1.0});
  const Schedule schedule = step_lr({.step_size = 2});
  const Scheduler scheduler(sgd, schedule);
  EXPECT_THAT([&] { Scheduler(sgd, schedule); },
              ThrowsMessage<UsageError>(HasSubstr("this schedule is already in use")));
  EXPECT_THAT([&] { chained_scheduler({schedule}); },
              ThrowsMessage<UsageError>(HasSubstr("this schedule is already in use")));
}

TEST(Scheduler, RefusesAnEmptySchedule) {
  auto sgd = sgd_of({1.0});
  EXPECT_THROW(Scheduler(sgd, nullptr), UsageError);
  EXPECT_THROW(chained_scheduler({}), UsageError);
  EXPECT_THROW(chained_scheduler({nullptr}), UsageError);
  EXPECT_THROW(lambda_lr(RateFunction()), UsageError);
}

TEST(Scheduler, GoesOnFromARateThatTheUserSet) {
  auto sgd = sgd_of({1.0});
  Scheduler scheduler(sgd, exponential_lr({.gamma = 0.5}));
  scheduler.step();
  sgd.param_groups()[0].options().set_lr(8.0);
  scheduler.step();
  EXPECT_EQ(rate_of(sgd), 4.0);
}

TEST(Scheduler, RefusesGroupsThatCameLater) {
  auto sgd = sgd_of({1.0});
  Scheduler scheduler(sgd, exponential_lr({.gamma = 0.5}));
  sgd.add_param_group(torch::optim::OptimizerParamGroup(
      {torch::zeros({1})}, std::make_unique<torch::optim::SGDOptions>(1.0)));
  EXPECT_THAT([&] { scheduler.step(); },
              ThrowsMessage<UsageError>(HasSubstr("the optimizer has 2 parameter groups, the "
                                                  "schedule was made for 1")));
}

TEST(Scheduler, KnowsAStepThatThrewAsNotTaken) {
  auto sgd = sgd_of({1.0});
  Scheduler scheduler(sgd, one_cycle_lr({.max_lr = 1.0, .total_steps = 2}));
  scheduler.step();
  scheduler.step();
  const double last = rate_of(sgd);
  EXPECT_THROW(scheduler.step(), UsageError);
  EXPECT_EQ(rate_of(sgd), last);
  EXPECT_EQ(scheduler.last_epoch(), 2);
}

TEST(Scheduler, TakesAFunctionForEachGroup) {
  auto sgd = sgd_of({1.0, 10.0});
  Scheduler scheduler(sgd, lambda_lr({[](int64_t step) { return 1.0 + static_cast<double>(step); },
                                      [](int64_t) { return 0.5; }}));
  scheduler.step();
  EXPECT_THAT(scheduler.last_lr(), ElementsAre(2.0, 5.0));
  EXPECT_THAT(
      [&] {
        Scheduler(sgd, lambda_lr({[](int64_t) { return 1.0; }, [](int64_t) { return 1.0; },
                                  [](int64_t) { return 1.0; }}));
      },
      ThrowsMessage<UsageError>(HasSubstr("3 functions for 2 parameter groups")));
}

TEST(Scheduler, MultipliesTheCurrentRate) {
  auto sgd = sgd_of({1.0});
  Scheduler scheduler(sgd, multiplicative_lr([](int64_t step) { return step == 3 ? 2.0 : 0.5; }));
  EXPECT_THAT(course(sgd, scheduler, 4), ElementsAre(1.0, 0.5, 0.25, 0.5, 0.25));
}

TEST(Scheduler, RefusesToCycleAMomentumThatIsNotThere) {
  torch::optim::Adagrad adagrad({torch::zeros({1})});
  EXPECT_THAT([&] { Scheduler(adagrad, one_cycle_lr({.max_lr = 1.0, .total_steps = 5})); },
              ThrowsMessage<UsageError>(HasSubstr("pass {.cycle_momentum = false}")));
  const Scheduler scheduler(
      adagrad, one_cycle_lr({.max_lr = 1.0, .total_steps = 5, .cycle_momentum = false}));
  EXPECT_NEAR(rate_of(adagrad), 0.04, 1e-12);
}

TEST(Scheduler, RefusesANumberOfValuesThatIsNotThatOfTheGroups) {
  auto sgd = sgd_of({1.0, 1.0, 1.0});
  EXPECT_THAT(
      [&] {
        Scheduler(sgd, one_cycle_lr({.max_lr = {1.0, 2.0}, .total_steps = 5}));
      },
      ThrowsMessage<UsageError>(
          HasSubstr("max_lr has 2 values, the optimizer 3 parameter groups")));
}

TEST(Scheduler, AsksForTheMetric) {
  auto sgd = sgd_of({1.0});
  Scheduler plateau = get_scheduler("reduce_lr_on_plateau", sgd, {.plateau = {{.patience = 0}}});
  EXPECT_TRUE(plateau.needs_metric());
  EXPECT_THAT([&] { plateau.step(); },
              ThrowsMessage<UsageError>(HasSubstr("this schedule needs a metric")));
  plateau.step(1.0);
  plateau.step(2.0);
  EXPECT_NEAR(rate_of(sgd), 0.1, 1e-12);

  Scheduler linear = get_scheduler("linear", sgd, {.warmup_steps = 0, .training_steps = 5});
  EXPECT_FALSE(linear.needs_metric());
  EXPECT_THAT([&] { linear.step(1.0); },
              ThrowsMessage<UsageError>(HasSubstr("takes neither a metric nor an epoch")));
  EXPECT_THAT([&] { chained_scheduler({reduce_lr_on_plateau({})}); },
              ThrowsMessage<UsageError>(HasSubstr("cannot be combined with others")));
}

// Where Python divides by 0 there is no rate to set.
TEST(Schedules, RefuseToBeginWhereThereIsNoRate) {
  for (const bool three_phase : {false, true}) {
    EXPECT_THAT(
        [&] {
          one_cycle_lr(
              {.max_lr = 1.0, .total_steps = 10, .pct_start = 0.1, .three_phase = three_phase});
        },
        ThrowsMessage<UsageError>(HasSubstr("the first phase ends at step 0, where it begins")));
  }
  EXPECT_THROW(one_cycle_lr({.max_lr = 1.0, .total_steps = 1, .pct_start = 1.0}), UsageError);
  EXPECT_THROW(one_cycle_lr({.max_lr = 1.0, .total_steps = 9, .div_factor = 0}), UsageError);
  EXPECT_THROW(one_cycle_lr({.max_lr = 1.0, .total_steps = 9, .final_div_factor = 0}), UsageError);
  EXPECT_THROW(
      one_cycle_lr(
          {.max_lr = 1.0, .epochs = int64_t{1} << 40, .steps_per_epoch = int64_t{1} << 40}),
      UsageError);
  auto sgd = sgd_of({0.0});
  EXPECT_THROW(get_scheduler("cosine_with_min_lr", sgd,
                             {.warmup_steps = 0, .training_steps = 5, .min_lr = 0.1}),
               UsageError);
}

TEST(Schedules, HaveARateWhereTheFirstPhaseEndsBeforeStepZero) {
  auto sgd = sgd_of({1.0});
  Scheduler scheduler(sgd, one_cycle_lr({.max_lr = 1.0, .total_steps = 10, .pct_start = 0.05}));
  EXPECT_NEAR(rate_of(sgd), 0.9931806, 1e-6);
}

// As Python: the course is there, the step beyond it is not.
TEST(Schedules, RefuseTheStepAtWhichThereIsNoRateAndStayBeforeIt) {
  auto sgd = sgd_of({1.0});
  Scheduler up(sgd, one_cycle_lr({.max_lr = 1.0, .total_steps = 4, .pct_start = 1.0}));
  for (int step = 1; step < 4; ++step) up.step();
  EXPECT_EQ(rate_of(sgd), 1.0);
  EXPECT_THROW(up.step(), UsageError);
  EXPECT_EQ(up.last_epoch(), 3);
  EXPECT_EQ(rate_of(sgd), 1.0);

  Scheduler nothing(sgd, constant_lr({.factor = 0, .total_iters = 2}));
  nothing.step();
  EXPECT_EQ(rate_of(sgd), 0.0);
  EXPECT_THAT([&] { nothing.step(); },
              ThrowsMessage<UsageError>(HasSubstr("cannot get back to the initial rate")));
  EXPECT_EQ(nothing.last_epoch(), 1);
  EXPECT_EQ(nothing.step_count(), 2);
}

TEST(Schedules, MayBeginWithNothingIfAnotherOneFollows) {
  auto sgd = sgd_of({1.0});
  Scheduler scheduler(
      sgd, sequential_lr(
               {constant_lr({.factor = 0, .total_iters = 2}), constant_lr({.factor = 1.0})}, {2}));
  EXPECT_THAT(course(sgd, scheduler, 3), ElementsAre(0.0, 0.0, 1.0, 1.0));
}

TEST(Schedules, RefuseEpochsThatAreNone) {
  auto sgd = sgd_of({1.0});
  Scheduler scheduler(sgd, cosine_annealing_warm_restarts({.t_0 = 2, .t_mult = 3}));
  for (const double epoch : {-1.0, 1e300, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_THROW(scheduler.step(epoch), UsageError);
  }
  EXPECT_EQ(scheduler.last_epoch(), 0);
}

TEST(CombinedSchedules, MayHoldCombinations) {
  auto sgd = sgd_of({1.0});
  Scheduler scheduler(
      sgd, sequential_lr({sequential_lr({constant_lr({.factor = 0.5, .total_iters = 9}),
                                         exponential_lr({.gamma = 0.5})},
                                        {2}),
                          chained_scheduler({exponential_lr({.gamma = 0.1}),
                                             constant_lr({.factor = 0.5, .total_iters = 9})})},
                         {4}));
  EXPECT_THAT(course(sgd, scheduler, 6), near({0.5, 0.5, 1.0, 0.5, 0.5, 0.05, 0.005}));
}

TEST(CombinedSchedules, BeginEachPartAtItsMilestone) {
  auto sgd = sgd_of({1.0});
  Scheduler scheduler(
      sgd, sequential_lr({linear_lr({.start_factor = 0.5, .total_iters = 2}),
                          cosine_annealing_warm_restarts({.t_0 = 2}), step_lr({.step_size = 1})},
                         {2, 5}));
  EXPECT_THAT(course(sgd, scheduler, 7), near({0.5, 0.75, 1.0, 0.5, 1.0, 1.0, 0.1, 0.01}));
}

TEST(SchedulerState, RefusesThatOfOtherGroups) {
  auto one = sgd_of({1.0});
  auto two = sgd_of({1.0, 2.0});
  const Scheduler saved(one, exponential_lr({.gamma = 0.5}));
  Scheduler scheduler(two, exponential_lr({.gamma = 0.5}));
  EXPECT_THAT([&] { scheduler.load_state_dict(saved.state_dict()); },
              ThrowsMessage<CheckpointError>(
                  HasSubstr("the saved schedule is of 1 parameter groups, the optimizer has 2")));
}

TEST(SchedulerState, RefusesThatOfAnotherSchedule) {
  auto sgd = sgd_of({1.0});
  const Scheduler saved(sgd, exponential_lr({.gamma = 0.5}));
  auto other = sgd_of({1.0});
  Scheduler scheduler(other, step_lr({.step_size = 3}));
  EXPECT_THAT([&] { scheduler.load_state_dict(saved.state_dict()); },
              ThrowsMessage<CheckpointError>(HasSubstr("the saved state has no 'step_size'")));
}

TEST(SchedulerState, GivesTheSavedRatesToTheOptimizer) {
  auto sgd = sgd_of({1.0});
  Scheduler saved(sgd, exponential_lr({.gamma = 0.5}));
  saved.step();
  auto other = sgd_of({1.0});
  Scheduler scheduler(other, exponential_lr({.gamma = 0.5}));
  scheduler.load_state_dict(saved.state_dict());
  EXPECT_EQ(rate_of(other), 0.5);
  EXPECT_EQ(scheduler.last_epoch(), 1);
}

TEST(SchedulerState, IsSharedByCopies) {
  auto sgd = sgd_of({1.0});
  Scheduler scheduler(sgd, exponential_lr({.gamma = 0.5}));
  Scheduler copy = scheduler;
  copy.step();
  EXPECT_EQ(scheduler.last_epoch(), 1);
}

TEST(PreparedScheduler, CanMoveOneStepACall) {
  auto sgd = sgd_of({1.0});
  PreparedScheduler scheduler(Scheduler(sgd, exponential_lr({.gamma = 0.5})), {.num_processes = 4},
                              {.pace = SchedulerPace::kPerOptimizerStep});
  scheduler.step();
  EXPECT_EQ(rate_of(sgd), 0.5);
}

TEST(PreparedScheduler, SaysOnceHowManyStepsACallIs) {
  auto sgd = sgd_of({1.0});
  testing::internal::CaptureStderr();
  const SchedulerContext three{.num_processes = 3};
  PreparedScheduler scheduler(Scheduler(sgd, exponential_lr({.gamma = 0.5})), three);
  scheduler.step();
  scheduler.step();
  EXPECT_EQ(
      testing::internal::GetCapturedStderr(),
      "warning: the scheduler makes 3 steps per call on 3 processes, which suits a schedule made "
      "for the data of one process; set .scheduler = {.pace = SchedulerPace::kPerOptimizerStep} "
      "for one step per call, or SchedulerPace::kPerProcess to keep it\n");
  testing::internal::CaptureStderr();
  auto asked = sgd_of({1.0});
  PreparedScheduler(Scheduler(asked, exponential_lr({.gamma = 0.5})), three,
                    {.pace = SchedulerPace::kPerProcess});
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "info: the scheduler makes 3 steps per call on 3 processes\n");
  testing::internal::CaptureStderr();
  auto other = sgd_of({1.0});
  PreparedScheduler(Scheduler(other, exponential_lr({.gamma = 0.5})),
                    {.num_processes = 3, .is_main_process = false});
  auto third = sgd_of({1.0});
  PreparedScheduler(Scheduler(third, exponential_lr({.gamma = 0.5})),
                    {.num_processes = 3, .says_pace = false});
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

// Four ranks have one metric, not four.
TEST(PreparedScheduler, CountsAMetricOnce) {
  auto sgd = sgd_of({1.0});
  PreparedScheduler scheduler(Scheduler(sgd, reduce_lr_on_plateau({.patience = 1})),
                              {.num_processes = 4}, {},
                              std::make_shared<test::ScriptedSchedulerHost>([] { return false; }));
  scheduler.step(1.0);
  scheduler.step(1.0);
  EXPECT_EQ(rate_of(sgd), 1.0);
  scheduler.step(1.0);
  EXPECT_NEAR(rate_of(sgd), 0.1, 1e-12);
}

TEST(PreparedScheduler, StopsAtTheEndOfTheSchedule) {
  auto sgd = sgd_of({1.0});
  PreparedScheduler scheduler(Scheduler(sgd, one_cycle_lr({.max_lr = 1.0, .total_steps = 5})),
                              {.num_processes = 2});
  for (int call = 0; call < 10; ++call) scheduler.step();
  EXPECT_EQ(scheduler.scheduler().last_epoch(), 5);
}

// A GPU that reports late how its updates ended.
struct LateHost final : SchedulerHost {
  void when_updates_are_known(std::function<void()> then) override {
    waiting.push_back(std::move(then));
  }
  void settle() override {
    for (const auto& then : std::exchange(waiting, {})) then();
  }
  std::vector<std::function<void()>> waiting;
};

TEST(PreparedScheduler, MovesWhenItIsKnownHowTheUpdateEnded) {
  auto sgd = sgd_of({1.0});
  PreparedScheduler scheduler(Scheduler(sgd, exponential_lr({.gamma = 0.5})), {}, {},
                              std::make_shared<LateHost>());
  scheduler.step();
  EXPECT_EQ(rate_of(sgd), 1.0);
  EXPECT_THAT(scheduler.last_lr(), testing::ElementsAre(0.5));  // asked: it must know
  EXPECT_EQ(rate_of(sgd), 0.5);
}

TEST(PreparedScheduler, ReachesTheEndOfTheScheduleAlsoWithAccumulation) {
  auto sgd = sgd_of({1.0});
  bool sync = false;
  PreparedScheduler scheduler(Scheduler(sgd, one_cycle_lr({.max_lr = 1.0, .total_steps = 5})), {},
                              {},
                              std::make_shared<test::ScriptedSchedulerHost>([&] { return sync; }));
  for (int call = 0; call < 20; ++call) {
    sync = call % 4 == 3;
    scheduler.step();
  }
  EXPECT_EQ(scheduler.scheduler().last_epoch(), 5);
}

}  // namespace
}  // namespace accelerate
