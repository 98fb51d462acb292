// Learning rates of schedulers against those that torch and Transformers recorded, step by step.
#include <accelerate/schedulers.h>
#include <torch/torch.h>

#include "golden/case_log.h"
#include "golden/recorded_arguments.h"
#include "golden/recorded_optimizers.h"
#include "golden/recorded_schedules.h"
#include "golden/reference_data.h"

namespace accelerate::test {
namespace {

using nlohmann::json;

constexpr Tolerance kRates{.absolute = 1e-12, .relative = 1e-9};

// {"type": "SGD", "default_lr": 0.1, "group_lr": [0.1, 0.02], "args": {"momentum": 0.9}}
std::unique_ptr<torch::optim::Optimizer> optimizer_with_rates(const json& settings) {
  json arguments = is_given(settings, "args") ? settings.at("args") : json::object();
  arguments["lr"] = settings.at("default_lr");
  const std::string type = settings.at("type");
  std::vector<torch::optim::OptimizerParamGroup> groups;
  for (const json& lr : settings.at("group_lr")) {
    json of_group = arguments;
    of_group["lr"] = lr;
    groups.emplace_back(std::vector<at::Tensor>{torch::zeros({1}).requires_grad_()},
                        recorded_optimizer_options(type, of_group));
  }
  return recorded_optimizer(type, groups, arguments);
}

Scheduler scheduler_of_case(const json& recorded, torch::optim::Optimizer& optimizer) {
  const std::string name = recorded.at("name");
  const json arguments = recorded.value("args", json::object());
  if (recorded.at("family") == "transformers") {
    return get_scheduler(name, optimizer, recorded_scheduler_options(name, arguments));
  }
  return Scheduler(optimizer, recorded_torch_schedule(name, arguments));
}

std::vector<double> rates_of(torch::optim::Optimizer& optimizer) {
  std::vector<double> rates;
  for (const auto& group : optimizer.param_groups()) rates.push_back(group.options().get_lr());
  return rates;
}

// Whether a saved state says what was recorded: the same names, numbers to the tolerance.
std::string state_difference(const StateValue& own, const json& expected,
                             const std::string& where) {
  if (expected.is_null()) return own.is_null() ? "" : where + " is not null";
  if (expected.is_object()) {
    const StateDict& dict = own.as_dict();
    for (const auto& [key, value] : expected.items()) {
      if (!dict.contains(key)) return where + " has no " + key;
      std::string found = state_difference(dict.at(key), value, where + "." + key);
      if (!found.empty()) return found;
    }
    return dict.size() == expected.size() ? "" : where + " has entries too many";
  }
  if (expected.is_array()) {
    if (own.as_list().size() != expected.size()) return where + " is of another length";
    for (size_t i = 0; i < expected.size(); ++i) {
      std::string found =
          state_difference(own.as_list()[i], expected.at(i), where + "[" + std::to_string(i) + "]");
      if (!found.empty()) return found;
    }
    return "";
  }
  if (expected.is_boolean()) return own.as_bool() == expected.get<bool>() ? "" : where;
  if (std::holds_alternative<std::string>(own.variant())) {
    return own.as_string() == expected.get<std::string>() ? "" : where;
  }
  const double a = own.as_number();
  const double b = recorded_number(expected);
  if (a == b || std::abs(a - b) <= kRates.absolute + kRates.relative * std::abs(b)) return "";
  return where + " is " + std::to_string(a) + ", expected " + expected.dump();
}

class ScheduleRun {
 public:
  ScheduleRun(const json& recorded, CaseLog& log)
      : recorded_(recorded),
        log_(log),
        optimizer_(optimizer_with_rates(recorded.at("optimizer"))),
        scheduler_(scheduler_of_case(recorded, *optimizer_)) {}

  void run() {
    const size_t steps = recorded_.at("lr").size() - 1;
    const size_t saved_after = steps_before_saving();
    compare(0);
    if (saved_after == 0) compare_state();
    for (size_t step = 0; step < steps; ++step) {
      advance(scheduler_, step);
      compare(step + 1);
      if (step + 1 == saved_after) compare_state();
    }
  }

  // Another scheduler, which loads the state half way, takes the same course from there on.
  void resume() {
    const size_t steps = recorded_.at("lr").size() - 1;
    const size_t saved_after = steps_before_saving();
    for (size_t step = 0; step < saved_after; ++step) advance(scheduler_, step);
    auto other_optimizer = optimizer_with_rates(recorded_.at("optimizer"));
    Scheduler other = scheduler_of_case(recorded_, *other_optimizer);
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
  // Half way, where no state is recorded.
  size_t steps_before_saving() const {
    if (!is_given(recorded_, "state_dict_after")) return (recorded_.at("lr").size() - 1) / 2;
    return recorded_.at("state_dict_after").at("steps");
  }

  void advance(Scheduler& scheduler, size_t step) {
    const char* given = is_given(recorded_, "metrics") ? "metrics" : "step_epochs";
    if (is_given(recorded_, given) && !recorded_.at(given).at(step).is_null()) {
      scheduler.step(recorded_number(recorded_.at(given).at(step)));
    } else {
      scheduler.step();
    }
  }

  void compare(size_t step) {
    const std::string after = " after step " + std::to_string(step);
    const auto expected = recorded_.at("lr").at(step).get<std::vector<double>>();
    log_.expect_near("rates" + after, rates_of(*optimizer_), expected, kRates);
    log_.expect_near("last_lr" + after, scheduler_.last_lr(), expected, kRates);
    if (!is_given(recorded_, "momentum_or_beta1")) return;
    log_.expect_near("momenta" + after, momenta_of_groups(*optimizer_),
                     recorded_.at("momentum_or_beta1").at(step).get<std::vector<double>>(), kRates);
  }

  void compare_state() {
    if (!is_given(recorded_, "state_dict_after")) return;
    const std::string found = state_difference(
        scheduler_.state_dict(), recorded_.at("state_dict_after").at("state"), "the state");
    if (!found.empty()) log_.note(found);
  }

  const json& recorded_;
  CaseLog& log_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  Scheduler scheduler_;
};

TEST(Fixtures, LearningRatesOfSchedules) {
  const json fixture = load_fixture("lr_schedules.json");
  CaseLog log;
  for (const json& recorded : fixture.at("cases")) {
    log.run(inputs_of(recorded), [&] { ScheduleRun(recorded, log).run(); });
  }
  log.report();
}

TEST(Fixtures, LearningRatesAfterLoadingTheStateOfASchedule) {
  const json fixture = load_fixture("lr_schedules.json");
  CaseLog log;
  for (const json& recorded : fixture.at("cases")) {
    log.run(inputs_of(recorded), [&] { ScheduleRun(recorded, log).resume(); });
  }
  log.report();
}

TEST(Fixtures, SchedulesThatAreRefused) {
  const json fixture = load_fixture("lr_schedules.json");
  CaseLog log;
  for (const json& recorded : fixture.at("errors")) {
    log.run(recorded, [&] {
      // Schedules that turn the momentum want one.
      const json settings =
          is_given(recorded, "optimizer")
              ? recorded.at("optimizer")
              : json{{"type", "SGD"},
                     {"default_lr", recorded.value("default_lr", recorded.at("group_lr").at(0))},
                     {"group_lr", recorded.at("group_lr")},
                     {"args", {{"momentum", 0.9}}}};
      const auto optimizer = optimizer_with_rates(settings);
      try {
        Scheduler scheduler = scheduler_of_case(recorded, *optimizer);
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
      } catch (const UnknownArgument& error) {
        // What Python refuses as it runs does not compile here.
        if (recorded.at("error") != "TypeError") log.note(error.what());
      }
    });
  }
  log.report();
}

TEST(Fixtures, AllNamesOfSchedulesAreKnown) {
  const json fixture = load_fixture("lr_schedules.json");
  ASSERT_FALSE(fixture.at("names_offered_by_get_scheduler").empty());
  torch::optim::SGD sgd({torch::zeros({1})}, 0.1);
  for (const json& name : fixture.at("names_offered_by_get_scheduler")) {
    try {
      get_scheduler(name.get<std::string>(), sgd);
    } catch (const UsageError& error) {
      EXPECT_EQ(error.message().find("unknown schedule"), std::string::npos) << name;
    }
  }
}

}  // namespace
}  // namespace accelerate::test
