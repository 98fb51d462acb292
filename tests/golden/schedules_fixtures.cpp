// Learning rates of schedulers against those that torch and Transformers recorded, step by step.
#include <accelerate/schedulers.h>
#include <torch/torch.h>

#include <functional>
#include <limits>
#include <map>

#include "golden/case_log.h"
#include "golden/reference_data.h"

namespace accelerate::test {
namespace {

using nlohmann::json;

constexpr Tolerance kRates{.absolute = 1e-12, .relative = 1e-9};

double schedule_number(const json& value) {
  if (!value.is_string()) return value.get<double>();
  const double infinity = std::numeric_limits<double>::infinity();
  return value == "Infinity" ? infinity : -infinity;
}

GroupValues group_values(const json& value) {
  if (value.is_array()) return value.get<std::vector<double>>();
  return value.get<double>();
}

// Gives an option its recorded value. Every key that was recorded must have been asked for.
class Arguments {
 public:
  explicit Arguments(const json& arguments) : arguments_(arguments) {}
  ~Arguments() noexcept(false) {
    if (std::uncaught_exceptions() > 0) return;
    for (const auto& [key, value] : arguments_.items()) {
      if (asked_.count(key) == 0) throw std::runtime_error("no option for the argument " + key);
    }
  }

  template <class T>
  Arguments& operator()(const char* key, T& option) {
    asked_.insert(key);
    if (arguments_.contains(key)) assign(arguments_.at(key), option);
    return *this;
  }

 private:
  template <class T>
  static void assign(const json& value, T& option) {
    option = value.get<T>();
  }
  template <class T>
  static void assign(const json& value, std::optional<T>& option) {
    option = value.get<T>();
  }
  static void assign(const json& value, GroupValues& option) { option = group_values(value); }

  const json& arguments_;
  std::set<std::string> asked_;
};

PlateauOptions plateau_options(const json& arguments) {
  PlateauOptions options;
  Arguments{arguments}("mode", options.mode)("factor", options.factor)(
      "patience", options.patience)("threshold", options.threshold)(
      "threshold_mode", options.threshold_mode)("cooldown", options.cooldown)(
      "min_lr", options.min_lr)("eps", options.eps);
  return options;
}

GreedyOptions greedy_options(const json& arguments) {
  GreedyOptions options;
  Arguments{arguments}("mode", options.mode)("factor", options.factor)(
      "patience", options.patience)("cooldown", options.cooldown)("warmup", options.warmup)(
      "min_lr", options.min_lr)("max_lr", options.max_lr)("smooth", options.smooth)(
      "window_size", options.window_size)("reset_start", options.reset_start);
  return options;
}

SchedulerOptions named_options(const std::string& name, const json& arguments) {
  SchedulerOptions options;
  if (name == "reduce_lr_on_plateau") {
    options.plateau = plateau_options(arguments);
  } else if (name == "greedy") {
    options.greedy = greedy_options(arguments);
  } else {
    Arguments{arguments}("num_warmup_steps", options.warmup_steps)(
        "num_training_steps", options.training_steps)("num_cycles", options.num_cycles)(
        "lr_end", options.lr_end)("power", options.power)("timescale", options.timescale)(
        "min_lr", options.min_lr)("min_lr_rate", options.min_lr_rate)(
        "warmup_lr_rate", options.warmup_lr_rate)("num_decay_steps", options.decay_steps)(
        "num_stable_steps", options.stable_steps)("warmup_type", options.warmup_type)(
        "decay_type", options.decay_type)("min_lr_ratio", options.min_lr_ratio);
  }
  return options;
}

Schedule torch_schedule(const std::string& name, const json& arguments);

std::vector<Schedule> parts_of(const json& arguments) {
  std::vector<Schedule> parts;
  for (const json& part : arguments.at("schedulers")) {
    parts.push_back(torch_schedule(part.at("name"), part.at("args")));
  }
  return parts;
}

using Make = std::function<Schedule(const json& arguments)>;

const std::map<std::string, Make>& torch_schedules() {
  static const std::map<std::string, Make> table{
      {"StepLR",
       [](const json& a) {
         StepLrOptions o;
         Arguments{a}("step_size", o.step_size)("gamma", o.gamma);
         return step_lr(o);
       }},
      {"MultiStepLR",
       [](const json& a) {
         MultiStepLrOptions o;
         Arguments{a}("milestones", o.milestones)("gamma", o.gamma);
         return multi_step_lr(o);
       }},
      {"ConstantLR",
       [](const json& a) {
         ConstantLrOptions o;
         Arguments{a}("factor", o.factor)("total_iters", o.total_iters);
         return constant_lr(o);
       }},
      {"LinearLR",
       [](const json& a) {
         LinearLrOptions o;
         Arguments{a}("start_factor", o.start_factor)("end_factor", o.end_factor)("total_iters",
                                                                                  o.total_iters);
         return linear_lr(o);
       }},
      {"ExponentialLR",
       [](const json& a) {
         ExponentialLrOptions o;
         Arguments{a}("gamma", o.gamma);
         return exponential_lr(o);
       }},
      {"PolynomialLR",
       [](const json& a) {
         PolynomialLrOptions o;
         Arguments{a}("total_iters", o.total_iters)("power", o.power);
         return polynomial_lr(o);
       }},
      {"CosineAnnealingLR",
       [](const json& a) {
         CosineAnnealingLrOptions o;
         Arguments{a}("T_max", o.t_max)("eta_min", o.eta_min);
         return cosine_annealing_lr(o);
       }},
      {"CosineAnnealingWarmRestarts",
       [](const json& a) {
         WarmRestartsOptions o;
         Arguments{a}("T_0", o.t_0)("T_mult", o.t_mult)("eta_min", o.eta_min);
         return cosine_annealing_warm_restarts(o);
       }},
      {"OneCycleLR",
       [](const json& a) {
         OneCycleLrOptions o;
         Arguments{a}("max_lr", o.max_lr)("total_steps", o.total_steps)("epochs", o.epochs)(
             "steps_per_epoch", o.steps_per_epoch)("pct_start", o.pct_start)(
             "anneal_strategy", o.anneal_strategy)("base_momentum", o.base_momentum)(
             "max_momentum", o.max_momentum)("div_factor", o.div_factor)("three_phase",
                                                                         o.three_phase);
         return one_cycle_lr(o);
       }},
      {"CyclicLR",
       [](const json& a) {
         CyclicLrOptions o;
         Arguments{a}("base_lr", o.base_lr)("max_lr", o.max_lr)("step_size_up", o.step_size_up)(
             "step_size_down", o.step_size_down)("mode", o.mode)("gamma", o.gamma)(
             "cycle_momentum", o.cycle_momentum);
         return cyclic_lr(o);
       }},
      {"SequentialLR",
       [](const json& a) {
         return sequential_lr(parts_of(a), a.at("milestones").get<std::vector<int64_t>>());
       }},
      {"ChainedScheduler", [](const json& a) { return chained_scheduler(parts_of(a)); }}};
  return table;
}

Schedule torch_schedule(const std::string& name, const json& arguments) {
  return torch_schedules().at(name)(arguments);
}

template <class Optimizer, class Options>
std::unique_ptr<torch::optim::Optimizer> optimizer_of(Options defaults, const json& group_lrs) {
  std::vector<torch::optim::OptimizerParamGroup> groups;
  for (const json& lr : group_lrs) {
    auto options = std::make_unique<Options>(defaults);
    options->lr(lr.get<double>());
    groups.emplace_back(std::vector<at::Tensor>{torch::zeros({1}).requires_grad_()},
                        std::move(options));
  }
  return std::make_unique<Optimizer>(groups, defaults);
}

std::unique_ptr<torch::optim::Optimizer> optimizer_of(const json& settings) {
  const double lr = settings.at("default_lr");
  if (settings.at("type") == "AdamW") {
    return optimizer_of<torch::optim::AdamW>(torch::optim::AdamWOptions(lr),
                                             settings.at("group_lr"));
  }
  auto options = torch::optim::SGDOptions(lr);
  if (settings.contains("args")) options.momentum(settings.at("args").at("momentum"));
  return optimizer_of<torch::optim::SGD>(options, settings.at("group_lr"));
}

Scheduler scheduler_of(const json& recorded, torch::optim::Optimizer& optimizer) {
  const std::string name = recorded.at("name");
  if (recorded.at("family") == "transformers") {
    return get_scheduler(name, optimizer, named_options(name, recorded.at("args")));
  }
  return Scheduler(optimizer, torch_schedule(name, recorded.at("args")));
}

std::vector<double> rates_of(torch::optim::Optimizer& optimizer) {
  std::vector<double> rates;
  for (const auto& group : optimizer.param_groups()) rates.push_back(group.options().get_lr());
  return rates;
}

std::vector<double> momenta_of(torch::optim::Optimizer& optimizer) {
  std::vector<double> momenta;
  for (const auto& group : optimizer.param_groups()) {
    if (const auto* sgd = dynamic_cast<const torch::optim::SGDOptions*>(&group.options())) {
      momenta.push_back(sgd->momentum());
    } else {
      const auto& adamw = dynamic_cast<const torch::optim::AdamWOptions&>(group.options());
      momenta.push_back(std::get<0>(adamw.betas()));
    }
  }
  return momenta;
}

// Whether a saved state says what was recorded: the same names, numbers to the tolerance.
std::string difference(const StateValue& own, const json& expected, const std::string& where) {
  if (expected.is_null()) return own.is_null() ? "" : where + " is not null";
  if (expected.is_object()) {
    const StateDict& dict = own.as_dict();
    for (const auto& [key, value] : expected.items()) {
      if (!dict.contains(key)) return where + " has no " + key;
      std::string found = difference(dict.at(key), value, where + "." + key);
      if (!found.empty()) return found;
    }
    return dict.size() == expected.size() ? "" : where + " has entries too many";
  }
  if (expected.is_array()) {
    if (own.as_list().size() != expected.size()) return where + " is of another length";
    for (size_t i = 0; i < expected.size(); ++i) {
      std::string found =
          difference(own.as_list()[i], expected.at(i), where + "[" + std::to_string(i) + "]");
      if (!found.empty()) return found;
    }
    return "";
  }
  if (expected.is_boolean()) return own.as_bool() == expected.get<bool>() ? "" : where;
  if (std::holds_alternative<std::string>(own.variant())) {
    return own.as_string() == expected.get<std::string>() ? "" : where;
  }
  const double a = own.as_number();
  const double b = schedule_number(expected);
  if (a == b || std::abs(a - b) <= kRates.absolute + kRates.relative * std::abs(b)) return "";
  return where + " is " + std::to_string(a) + ", expected " + expected.dump();
}

class ScheduleRun {
 public:
  ScheduleRun(const json& recorded, CaseLog& log)
      : recorded_(recorded),
        log_(log),
        optimizer_(optimizer_of(recorded.at("optimizer"))),
        scheduler_(scheduler_of(recorded, *optimizer_)) {}

  void run() {
    const size_t steps = recorded_.at("lr").size() - 1;
    const size_t saved_after = recorded_.at("state_dict_after").at("steps");
    compare(0);
    for (size_t step = 0; step < steps; ++step) {
      advance(scheduler_, step);
      compare(step + 1);
      if (step + 1 == saved_after) compare_state();
    }
  }

  // Another scheduler, which loads the state half way, takes the same course from there on.
  void resume() {
    const size_t steps = recorded_.at("lr").size() - 1;
    const size_t saved_after = recorded_.at("state_dict_after").at("steps");
    for (size_t step = 0; step < saved_after; ++step) advance(scheduler_, step);
    auto other_optimizer = optimizer_of(recorded_.at("optimizer"));
    Scheduler other = scheduler_of(recorded_, *other_optimizer);
    other.load_state_dict(scheduler_.state_dict());
    log_.expect_equal("rates after loading", rates_of(*other_optimizer), rates_of(*optimizer_));
    for (size_t step = saved_after; step < steps; ++step) {
      advance(other, step);
      log_.expect_near("rates after loading and step " + std::to_string(step + 1),
                       rates_of(*other_optimizer),
                       recorded_.at("lr").at(step + 1).get<std::vector<double>>(), kRates);
    }
  }

 private:
  void advance(Scheduler& scheduler, size_t step) {
    if (recorded_.contains("metrics")) {
      scheduler.step(recorded_.at("metrics").at(step).get<double>());
    } else if (recorded_.contains("step_epochs")) {
      scheduler.step(recorded_.at("step_epochs").at(step).get<double>());
    } else {
      scheduler.step();
    }
  }

  void compare(size_t step) {
    const std::string after = " after step " + std::to_string(step);
    const auto expected = recorded_.at("lr").at(step).get<std::vector<double>>();
    log_.expect_near("rates" + after, rates_of(*optimizer_), expected, kRates);
    log_.expect_near("last_lr" + after, scheduler_.last_lr(), expected, kRates);
    if (!recorded_.contains("momentum_or_beta1")) return;
    log_.expect_near("momenta" + after, momenta_of(*optimizer_),
                     recorded_.at("momentum_or_beta1").at(step).get<std::vector<double>>(), kRates);
  }

  void compare_state() {
    const std::string found = difference(scheduler_.state_dict(),
                                         recorded_.at("state_dict_after").at("state"), "the state");
    if (!found.empty()) log_.note(found);
  }

  const json& recorded_;
  CaseLog& log_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  Scheduler scheduler_;
};

TEST(Fixtures, LearningRatesOfSchedules) {
  LOAD_FIXTURE_OR_SKIP(fixture, "lr_schedules.json");
  CaseLog log;
  for (const json& recorded : fixture.at("cases")) {
    log.run(inputs_of(recorded), [&] { ScheduleRun(recorded, log).run(); });
  }
  log.report();
}

TEST(Fixtures, LearningRatesAfterLoadingTheStateOfASchedule) {
  LOAD_FIXTURE_OR_SKIP(fixture, "lr_schedules.json");
  CaseLog log;
  for (const json& recorded : fixture.at("cases")) {
    log.run(inputs_of(recorded), [&] { ScheduleRun(recorded, log).resume(); });
  }
  log.report();
}

TEST(Fixtures, SchedulesThatAreRefused) {
  LOAD_FIXTURE_OR_SKIP(fixture, "lr_schedules.json");
  CaseLog log;
  for (const json& recorded : fixture.at("errors")) {
    log.run(recorded, [&] {
      const json settings{{"type", "SGD"},
                          {"default_lr", recorded.at("group_lr").at(0)},
                          {"group_lr", recorded.at("group_lr")},
                          {"args", {{"momentum", 0.9}}}};
      const auto optimizer = optimizer_of(settings);
      try {
        Scheduler scheduler = scheduler_of(recorded, *optimizer);
        const int steps = recorded.value("ok_steps_before_error", -1);
        for (int step = 0; step < steps; ++step) scheduler.step();
        if (steps < 0) return log.note("it is not refused");
        try {
          scheduler.step();
          log.note("the step too many is not refused");
        } catch (const UsageError&) {
        }
      } catch (const UsageError& error) {
        if (recorded.contains("ok_steps_before_error")) log.note(error.what());
      }
    });
  }
  log.report();
}

TEST(Fixtures, AllNamesOfSchedulesAreKnown) {
  LOAD_FIXTURE_OR_SKIP(fixture, "lr_schedules.json");
  torch::optim::SGD sgd({torch::zeros({1})}, 0.1);
  for (const json& name : fixture.at("names_offered_by_get_scheduler")) {
    try {
      get_scheduler(name.get<std::string>(), sgd);
    } catch (const UsageError& error) {
      EXPECT_EQ(error.message().find("there is no schedule"), std::string::npos) << name;
    }
  }
}

}  // namespace
}  // namespace accelerate::test
