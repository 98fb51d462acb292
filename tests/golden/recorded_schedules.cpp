#include "golden/recorded_schedules.h"

#include <torch/optim/optimizer.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>

#include "golden/recorded_arguments.h"

namespace accelerate::test {
namespace {

using nlohmann::json;

PlateauOptions plateau_options(const json& recorded) {
  PlateauOptions options;
  RecordedArguments arguments(recorded);
  arguments("mode", options.mode)("factor", options.factor)("patience", options.patience)(
      "threshold", options.threshold)("threshold_mode", options.threshold_mode)(
      "cooldown", options.cooldown)("min_lr", options.min_lr)("eps", options.eps);
  // Positional arguments of get_scheduler, which this schedule does not use.
  arguments.ignore("num_warmup_steps").ignore("num_training_steps").done();
  return options;
}

GreedyOptions greedy_options(const json& recorded) {
  GreedyOptions options;
  RecordedArguments arguments(recorded);
  arguments("mode", options.mode)("factor", options.factor)("patience", options.patience)(
      "threshold", options.threshold)("threshold_mode", options.threshold_mode)(
      "cooldown", options.cooldown)("warmup", options.warmup)("min_lr", options.min_lr)(
      "max_lr", options.max_lr)("eps", options.eps)("smooth", options.smooth)(
      "window_size", options.window_size)("reset_start", options.reset_start);
  arguments.ignore("verbose").ignore("num_warmup_steps").ignore("num_training_steps").done();
  return options;
}

std::vector<Schedule> parts_of_schedule(const json& arguments) {
  std::vector<Schedule> parts;
  for (const json& part : arguments.at("schedulers")) {
    parts.push_back(recorded_torch_schedule(part.at("name"), part.value("args", json::object())));
  }
  return parts;
}

// Reads the arguments of one call. All schedules of torch take the step they begin with.
template <class Options, class Read>
Options read_options(const json& recorded, Read read) {
  Options options;
  RecordedArguments arguments(recorded);
  read(arguments, options);
  arguments.only("last_epoch", -1).ignore("verbose").done();
  return options;
}

using MakeSchedule = std::function<Schedule(const json& arguments)>;
using Read = RecordedArguments;

const std::map<std::string, MakeSchedule>& torch_schedules() {
  static const std::map<std::string, MakeSchedule> table{
      {"StepLR",
       [](const json& recorded) {
         return step_lr(read_options<StepLrOptions>(
             recorded, [](Read& a, auto& o) { a("step_size", o.step_size)("gamma", o.gamma); }));
       }},
      {"MultiStepLR",
       [](const json& recorded) {
         return multi_step_lr(read_options<MultiStepLrOptions>(
             recorded, [](Read& a, auto& o) { a("milestones", o.milestones)("gamma", o.gamma); }));
       }},
      {"ConstantLR",
       [](const json& recorded) {
         return constant_lr(read_options<ConstantLrOptions>(recorded, [](Read& a, auto& o) {
           a("factor", o.factor)("total_iters", o.total_iters);
         }));
       }},
      {"LinearLR",
       [](const json& recorded) {
         return linear_lr(read_options<LinearLrOptions>(recorded, [](Read& a, auto& o) {
           a("start_factor", o.start_factor)("end_factor", o.end_factor)("total_iters",
                                                                         o.total_iters);
         }));
       }},
      {"ExponentialLR",
       [](const json& recorded) {
         return exponential_lr(read_options<ExponentialLrOptions>(
             recorded, [](Read& a, auto& o) { a("gamma", o.gamma); }));
       }},
      {"PolynomialLR",
       [](const json& recorded) {
         return polynomial_lr(read_options<PolynomialLrOptions>(recorded, [](Read& a, auto& o) {
           a("total_iters", o.total_iters)("power", o.power);
         }));
       }},
      {"CosineAnnealingLR",
       [](const json& recorded) {
         return cosine_annealing_lr(read_options<CosineAnnealingLrOptions>(
             recorded, [](Read& a, auto& o) { a("T_max", o.t_max)("eta_min", o.eta_min); }));
       }},
      {"CosineAnnealingWarmRestarts",
       [](const json& recorded) {
         return cosine_annealing_warm_restarts(read_options<WarmRestartsOptions>(
             recorded,
             [](Read& a, auto& o) { a("T_0", o.t_0)("T_mult", o.t_mult)("eta_min", o.eta_min); }));
       }},
      {"OneCycleLR",
       [](const json& recorded) {
         return one_cycle_lr(read_options<OneCycleLrOptions>(recorded, [](Read& a, auto& o) {
           a("max_lr", o.max_lr)("total_steps", o.total_steps)("epochs", o.epochs)(
               "steps_per_epoch", o.steps_per_epoch)("pct_start", o.pct_start)(
               "anneal_strategy", o.anneal_strategy)("cycle_momentum", o.cycle_momentum)(
               "base_momentum", o.base_momentum)("max_momentum", o.max_momentum)(
               "div_factor", o.div_factor)("final_div_factor", o.final_div_factor)("three_phase",
                                                                                   o.three_phase);
         }));
       }},
      {"CyclicLR",
       [](const json& recorded) {
         return cyclic_lr(read_options<CyclicLrOptions>(recorded, [](Read& a, auto& o) {
           a("base_lr", o.base_lr)("max_lr", o.max_lr)("step_size_up", o.step_size_up)(
               "step_size_down", o.step_size_down)("mode", o.mode)("gamma", o.gamma)(
               "cycle_momentum", o.cycle_momentum)("base_momentum", o.base_momentum)(
               "max_momentum", o.max_momentum);
           // A function of the user's, and what it is called with: the mode says both without one.
           a.only("scale_fn", nullptr).ignore("scale_mode");
         }));
       }},
      {"ReduceLROnPlateau",
       [](const json& recorded) { return reduce_lr_on_plateau(plateau_options(recorded)); }},
      {"GreedyLR", [](const json& recorded) { return greedy_lr(greedy_options(recorded)); }},
      {"SequentialLR",
       [](const json& recorded) {
         std::vector<int64_t> milestones;
         RecordedArguments arguments(recorded);
         arguments("milestones", milestones).ignore("schedulers").only("last_epoch", -1).done();
         return sequential_lr(parts_of_schedule(recorded), milestones);
       }},
      {"ChainedScheduler", [](const json& recorded) {
         RecordedArguments(recorded).ignore("schedulers").done();
         return chained_scheduler(parts_of_schedule(recorded));
       }}};
  return table;
}

// Arguments of get_scheduler with those of scheduler_specific_kwargs among them.
json with_specific_arguments(json arguments) {
  if (arguments.is_null()) return json::object();
  for (const char* key : {"scheduler_specific_kwargs", "lr_scheduler_kwargs"}) {
    if (!arguments.contains(key)) continue;
    const json specific = arguments.at(key);
    arguments.erase(key);
    if (!specific.is_null()) arguments.update(specific);
  }
  return arguments;
}

// {"10": 1, "20": 2} as [10, 20, 20].
json milestones_of_state(const json& state) {
  json milestones = json::array();
  for (const auto& [step, times] : state.at("milestones").items()) {
    for (int i = 0; i < times.get<int>(); ++i) milestones.push_back(std::stoll(step));
  }
  return milestones;
}

}  // namespace

bool is_torch_schedule(const std::string& name) { return torch_schedules().contains(name); }

Schedule recorded_torch_schedule(const std::string& name, const json& arguments) {
  const auto found = torch_schedules().find(name);
  if (found == torch_schedules().end()) throw UnknownArgument("no schedule of torch is " + name);
  return found->second(arguments);
}

SchedulerOptions recorded_scheduler_options(const std::string& name, const json& recorded) {
  const json all = with_specific_arguments(recorded);
  SchedulerOptions options;
  if (name == "reduce_lr_on_plateau") {
    options.plateau = plateau_options(all);
  } else if (name == "greedy") {
    options.greedy = greedy_options(all);
  } else {
    RecordedArguments arguments(all);
    arguments("num_warmup_steps", options.warmup_steps)(
        "num_training_steps", options.training_steps)("num_cycles", options.num_cycles)(
        "lr_end", options.lr_end)("power", options.power)("timescale", options.timescale)(
        "min_lr", options.min_lr)("min_lr_rate", options.min_lr_rate)(
        "warmup_lr_rate", options.warmup_lr_rate)("num_decay_steps", options.decay_steps)(
        "num_stable_steps", options.stable_steps)("warmup_type", options.warmup_type)(
        "decay_type", options.decay_type)("min_lr_ratio", options.min_lr_ratio);
    arguments.only("last_epoch", -1).done();
  }
  return options;
}

Scheduler recorded_scheduler(const json& settings, torch::optim::Optimizer& optimizer) {
  if (settings.is_null()) {
    return Scheduler(optimizer, lambda_lr([](int64_t) { return 1.0; }));
  }
  const std::string name = settings.at("name");
  json arguments = settings;
  arguments.erase("name");
  if (is_torch_schedule(name)) {
    return Scheduler(optimizer, recorded_torch_schedule(name, arguments));
  }
  return get_scheduler(name, optimizer, recorded_scheduler_options(name, arguments));
}

Schedule schedule_of_state(const json& state) {
  // An entry of each state that no schedule before it has; the arguments are entries of the same
  // names.
  static const std::vector<std::pair<const char*, const char*>> kinds{
      {"milestones", "MultiStepLR"},  {"step_size", "StepLR"},
      {"T_max", "CosineAnnealingLR"}, {"T_mult", "CosineAnnealingWarmRestarts"},
      {"start_factor", "LinearLR"},   {"power", "PolynomialLR"},
      {"factor", "ConstantLR"},       {"gamma", "ExponentialLR"}};
  if (state.contains("lr_lambdas")) return lambda_lr([](int64_t) { return 1.0; });
  // Those of other schedules have entries of the same names, and not all of their arguments.
  const bool is_other =
      std::ranges::any_of(std::array{"max_lrs", "_schedule_phases", "_schedulers", "best"},
                          [&](const char* entry) { return state.contains(entry); });
  for (const auto& [entry, name] : kinds) {
    if (is_other || !state.contains(entry)) continue;
    json arguments = json::object();
    for (const char* key : {"step_size", "gamma", "T_max", "eta_min", "T_0", "T_mult",
                            "start_factor", "end_factor", "total_iters", "power", "factor"}) {
      if (state.contains(key)) arguments[key] = state.at(key);
    }
    if (state.contains("milestones")) arguments["milestones"] = milestones_of_state(state);
    return recorded_torch_schedule(name, arguments);
  }
  throw UnknownArgument("no schedule has the state " + state.dump());
}

}  // namespace accelerate::test
