// Saved states of schedules that are no good: refused whole, and nothing crashes.
#include <accelerate/errors.h>
#include <accelerate/schedulers.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <functional>
#include <limits>
#include <ostream>
#include <random>
#include <set>

namespace accelerate {
namespace {

using testing::HasSubstr;

torch::optim::SGD two_groups() {
  std::vector<torch::optim::OptimizerParamGroup> groups;
  for (const double rate : {1.0, 2.0}) {
    groups.emplace_back(
        std::vector<at::Tensor>{torch::zeros({1}).requires_grad_()},
        std::make_unique<torch::optim::SGDOptions>(torch::optim::SGDOptions(rate).momentum(0.9)));
  }
  return torch::optim::SGD(groups, torch::optim::SGDOptions(1.0).momentum(0.9));
}

using Maker = std::function<Schedule()>;

// Every kind of schedule.
const std::vector<std::pair<std::string, Maker>>& makers() {
  static const std::vector<std::pair<std::string, Maker>> all{
      {"lambda", [] { return lambda_lr([](int64_t) { return 0.5; }); }},
      {"multiplicative", [] { return multiplicative_lr([](int64_t) { return 0.5; }); }},
      {"step", [] { return step_lr({.step_size = 2}); }},
      {"multi_step",
       [] {
         return multi_step_lr({.milestones = {2, 4, 4}});
       }},
      {"constant", [] { return constant_lr({}); }},
      {"linear", [] { return linear_lr({}); }},
      {"exponential", [] { return exponential_lr({.gamma = 0.5}); }},
      {"polynomial", [] { return polynomial_lr({}); }},
      {"cosine", [] { return cosine_annealing_lr({.t_max = 3}); }},
      {"warm_restarts", [] { return cosine_annealing_warm_restarts({.t_0 = 2, .t_mult = 2}); }},
      {"one_cycle", [] { return one_cycle_lr({.max_lr = 1.0, .total_steps = 9}); }},
      {"one_cycle_rate_alone",
       [] { return one_cycle_lr({.max_lr = 1.0, .total_steps = 9, .cycle_momentum = false}); }},
      {"cyclic", [] { return cyclic_lr({.base_lr = 0.1, .max_lr = 1.0, .step_size_up = 3}); }},
      {"plateau", [] { return reduce_lr_on_plateau({.patience = 1}); }},
      {"greedy", [] { return greedy_lr({.patience = 1, .smooth = true, .window_size = 3}); }},
      {"chained",
       [] {
         return chained_scheduler({exponential_lr({.gamma = 0.5}), linear_lr({})});
       }},
      {"sequential",
       [] {
         return sequential_lr({linear_lr({.total_iters = 2}), cosine_annealing_lr({.t_max = 4}),
                               chained_scheduler({step_lr({.step_size = 1})})},
                              {2, 4});
       }},
  };
  return all;
}

void step(Scheduler& scheduler) {
  scheduler.needs_metric() ? scheduler.step(1.0) : scheduler.step();
}

// A schedule on its way.
struct Course {
  torch::optim::SGD sgd = two_groups();
  Scheduler scheduler;

  explicit Course(const Maker& make) : scheduler(sgd, make()) {
    step(scheduler);
    step(scheduler);
  }
  std::vector<double> rates() {
    return {sgd.param_groups()[0].options().get_lr(), sgd.param_groups()[1].options().get_lr()};
  }
};

struct BadField {
  std::string schedule;
  std::string field;
  StateValue value;
};

void PrintTo(const BadField& bad, std::ostream* out) { *out << bad.schedule << "." << bad.field; }

class RefusedField : public testing::TestWithParam<BadField> {};

TEST_P(RefusedField, LeavesTheScheduleAsItWas) {
  const auto& [name, field, value] = GetParam();
  for (const auto& [known, make] : makers()) {
    if (known != name) continue;
    Course course(make);
    const StateDict before = course.scheduler.state_dict();
    const std::vector<double> rates = course.rates();
    Course further(make);
    step(further.scheduler);  // so that what is read first differs
    StateDict bad = further.scheduler.state_dict();
    ASSERT_TRUE(bad.contains(field));
    bad.set(field, value);
    EXPECT_THROW(course.scheduler.load_state_dict(bad), CheckpointError);
    EXPECT_EQ(course.scheduler.state_dict(), before);
    EXPECT_EQ(course.rates(), rates);
    course.scheduler.load_state_dict(further.scheduler.state_dict());
    EXPECT_EQ(course.scheduler.state_dict(), further.scheduler.state_dict());
    return;
  }
  FAIL() << "no schedule " << name;
}

using Numbers = std::vector<double>;
constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();

StateDict phase_until(double step) { return StateDict{{"end_step", step}}; }

const std::vector<BadField> kBadFields{
    {"lambda", "base_lrs", Numbers{1.0}},
    {"multiplicative", "last_epoch", kMost},
    {"step", "step_size", 0},
    {"step", "_step_count", kMost},
    {"multi_step", "milestones", StateDict{{"second", 1}}},
    {"multi_step", "milestones", StateDict{{"99999999999999999999", 1}}},
    {"multi_step", "milestones", StateDict{{"2", 1}, {"4x", 1}}},
    {"constant", "factor", 1.5},
    {"linear", "start_factor", 0.0},
    {"linear", "total_iters", 0},
    {"exponential", "gamma", "half"},
    {"polynomial", "total_iters", 0},
    {"cosine", "T_max", 0},
    {"cosine", "last_epoch", kLeast},
    {"warm_restarts", "T_0", 0},
    {"warm_restarts", "T_mult", 0},
    {"warm_restarts", "T_i", 0},
    {"warm_restarts", "T_cur", kNoNumber},
    {"one_cycle", "total_steps", 0},
    {"one_cycle", "_anneal_func_type", "square"},
    {"one_cycle", "_schedule_phases", StateValue::List{}},
    {"one_cycle", "_schedule_phases", StateValue::List{phase_until(0), phase_until(8)}},
    {"one_cycle", "_schedule_phases", StateValue::List{phase_until(2), phase_until(kNoNumber)}},
    {"one_cycle_rate_alone", "cycle_momentum", true},
    {"cyclic", "max_lrs", Numbers{1.0}},
    {"cyclic", "base_momentums", Numbers{0.8}},
    {"cyclic", "max_momentums", Numbers{}},
    {"cyclic", "mode", "square"},
    {"cyclic", "total_size", 0.0},
    {"cyclic", "step_ratio", 0.0},
    {"plateau", "factor", 1.0},
    {"plateau", "mode", "least"},
    {"plateau", "threshold_mode", "both"},
    {"plateau", "min_lrs", Numbers{0.0}},
    {"plateau", "num_bad_epochs", kMost},
    {"greedy", "max_lrs", Numbers{1.0}},
    {"greedy", "_init_lrs", Numbers{}},
    {"greedy", "num_good_epochs", kMost},
    {"greedy", "_streaming_avg",
     StateDict{{"window_size", 0}, {"values", StateValue::List{}}, {"sum", 0.0}}},
    {"greedy", "_streaming_avg",
     StateDict{{"window_size", 1}, {"values", Numbers{1.0, 2.0}}, {"sum", 3.0}}},
    {"chained", "_schedulers", StateValue::List{}},
    {"sequential", "_milestones", std::vector<int64_t>{2, 4, 6}},
    {"sequential", "_milestones", std::vector<int64_t>{2}},
    {"sequential", "_milestones", std::vector<int64_t>{4, 2}},
    {"sequential", "_milestones", StateValue::List{"two", "four"}},
    {"sequential", "last_epoch", kMost},
};

INSTANTIATE_TEST_SUITE_P(OfEveryRule, RefusedField, testing::ValuesIn(kBadFields),
                         [](const auto& info) {
                           return info.param.schedule + "_" + info.param.field + "_" +
                                  std::to_string(info.index);
                         });

// What tells two kinds of schedules apart in their states.
std::set<std::string> entries_of(const StateDict& state) {
  std::set<std::string> names;
  for (const auto& [name, value] : state.entries()) names.insert(name);
  return names;
}

TEST(ScheduleState, OfAnotherScheduleIsRefused) {
  int pairs = 0;
  for (const auto& [saved_kind, make_saved] : makers()) {
    const StateDict state = Course(make_saved).scheduler.state_dict();
    for (const auto& [kind, make] : makers()) {
      Course course(make);
      const StateDict before = course.scheduler.state_dict();
      if (entries_of(before) == entries_of(state)) continue;
      if (saved_kind.starts_with(kind) || kind.starts_with(saved_kind)) continue;  // one_cycle
      ++pairs;
      EXPECT_THROW(course.scheduler.load_state_dict(state), CheckpointError)
          << "a state of " << saved_kind << " taken by " << kind;
      EXPECT_EQ(course.scheduler.state_dict(), before);
    }
  }
  EXPECT_GT(pairs, 200);
}

TEST(ScheduleState, OfAnotherScheduleInsideAScheduleIsRefused) {
  const StateDict state = Course([] {
                            return chained_scheduler({step_lr({.step_size = 2, .gamma = 0.1})});
                          }).scheduler.state_dict();
  Course course([] { return chained_scheduler({exponential_lr({.gamma = 0.9})}); });
  try {
    course.scheduler.load_state_dict(state);
    FAIL() << "no error";
  } catch (const CheckpointError& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("the saved schedule has the entry 'step_size': it is of another kind"));
  }
}

TEST(ScheduleState, MayHoldWhatOtherVersionsOfTorchNote) {
  Course course([] { return step_lr({.step_size = 2}); });
  StateDict state = course.scheduler.state_dict();
  state.set("verbose", false);
  state.set("_noted_by_another_version", 1.0);
  course.scheduler.load_state_dict(state);
}

TEST(ScheduleState, SaysWhatMakesNoSense) {
  Course course([] { return step_lr({.step_size = 2}); });
  StateDict bad = course.scheduler.state_dict();
  bad.set("step_size", 0);
  EXPECT_THAT([&] { course.scheduler.load_state_dict(bad); },
              testing::ThrowsMessage<CheckpointError>(
                  HasSubstr("the saved schedule is invalid: step_size must be positive")));
}

TEST(ScheduleState, RefusesAPartThatIsNoGoodAndKeepsTheOthers) {
  const Maker make = makers().back().second;
  Course course(make);
  const StateDict before = course.scheduler.state_dict();
  StateValue::List parts = before.at("_schedulers").as_list();
  StateDict first = parts[0].as_dict();
  first.set("last_epoch", 77);
  StateDict second = parts[1].as_dict();
  second.set("T_max", 0);
  StateDict bad = before;
  bad.set("_schedulers", StateValue::List{first, second, parts[2]});
  EXPECT_THROW(course.scheduler.load_state_dict(bad), CheckpointError);
  EXPECT_EQ(course.scheduler.state_dict(), before);
}

// Values of all kinds, with those at the edges.
class Garbage {
 public:
  explicit Garbage(unsigned seed) : random_(seed) {}

  StateDict damaged(const StateDict& state) {
    StateDict result;
    for (const auto& [key, value] : state.entries()) {
      const int dice = below(8);
      if (dice == 0) continue;
      result.set(key, dice == 1 ? anything() : dice == 2 ? damaged(value) : value);
    }
    return result;
  }

 private:
  StateValue damaged(const StateValue& value) {
    if (const auto* dict = std::get_if<StateDict>(&value.variant())) return damaged(*dict);
    if (const auto* list = std::get_if<StateValue::List>(&value.variant())) {
      StateValue::List result;
      for (const StateValue& one : *list) {
        if (below(6) != 0) result.push_back(below(3) == 0 ? damaged(one) : one);
      }
      if (below(3) == 0) result.push_back(anything());
      return result;
    }
    if (std::holds_alternative<int64_t>(value.variant())) return integer();
    if (std::holds_alternative<double>(value.variant())) return number();
    return anything();
  }
  StateValue anything() {
    switch (below(7)) {
      case 0:
        return {};
      case 1:
        return below(2) == 0;
      case 2:
        return integer();
      case 3:
        return number();
      case 4:
        return "text";
      case 5:
        return StateValue::List{integer(), number()};
      default:
        return StateDict{{"1", integer()}, {"end_step", number()}};
    }
  }
  StateValue integer() { return pick<int64_t>({kLeast, -2, -1, 0, 1, 2, 5, 1000, kMost}); }
  StateValue number() {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    return pick<double>({-kInfinity, -1e300, -1, 0, 1e-300, 0.5, 1, 3, 1e300, kInfinity});
  }
  template <class T>
  T pick(std::vector<T> values) {
    return values[static_cast<size_t>(below(static_cast<int>(values.size())))];
  }
  int below(int end) { return std::uniform_int_distribution<int>(0, end - 1)(random_); }

  std::mt19937 random_;
};

TEST(ScheduleState, GarbageIsRefusedWholeOrTakenAndNeverCrashes) {
  int refused = 0;
  int taken = 0;
  for (const auto& [name, make] : makers()) {
    SCOPED_TRACE(name);
    for (unsigned seed = 0; seed < 200; ++seed) {
      Course course(make);
      const StateDict before = course.scheduler.state_dict();
      const std::vector<double> rates = course.rates();
      try {
        course.scheduler.load_state_dict(Garbage(seed).damaged(before));
        ++taken;
      } catch (const CheckpointError&) {
        ++refused;
        ASSERT_EQ(course.scheduler.state_dict(), before) << seed;
        ASSERT_EQ(course.rates(), rates) << seed;
        continue;
      }
      try {
        for (int i = 0; i < 12; ++i) step(course.scheduler);
        (void)course.scheduler.state_dict();
      } catch (const UsageError&) {  // a schedule that is over
      }
    }
  }
  EXPECT_GT(refused, 1000);
  EXPECT_GT(taken, 100);
}

// torch tells the one minimum apart from one for each group.
TEST(ScheduleState, OfAPlateauNamesItsMinimumOnlyIfAllGroupsHaveTheSame) {
  auto sgd = two_groups();
  EXPECT_EQ(GroupValues(0.1).for_all(), 0.1);
  EXPECT_EQ(GroupValues({0.1, 0.1}).for_all(), std::nullopt);
  const Scheduler same(sgd, reduce_lr_on_plateau({.min_lr = 0.1}));
  EXPECT_EQ(same.state_dict().at("default_min_lr").as_number(), 0.1);
  const Scheduler each(sgd, reduce_lr_on_plateau({.min_lr = {0.1, 0.2}}));
  EXPECT_TRUE(each.state_dict().at("default_min_lr").is_null());
}

}  // namespace
}  // namespace accelerate
