// The schedules that training programs ask for by name: factors of the initial rate.
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "accelerate/errors.h"
#include "accelerate/schedulers.h"
#include "optim/function_schedules.h"

namespace accelerate {
namespace {

using std::numbers::pi;

// What a schedule is made from, with steps as the numbers that they are computed with.
struct Request {
  const SchedulerOptions& options;
  double warmup = 0;
  double training = 0;
  double default_lr = 0;  // of the optimizer
};

double ramp(double step, double warmup) { return step / std::max(1.0, warmup); }

double cosine(double progress, double cycles) {
  return 0.5 * (1.0 + std::cos(pi * cycles * 2.0 * progress));
}

// The line of the warm-up, then what `course` says.
template <class Course>
Schedule warmed_up(double warmup, Course course) {
  return named_lambda_lr([=](int64_t at) {
    const auto step = static_cast<double>(at);
    return step < warmup ? ramp(step, warmup) : course(step);
  });
}

Schedule linear(const Request& request) {
  return warmed_up(request.warmup, [warmup = request.warmup, end = request.training](double step) {
    return std::max(0.0, (end - step) / std::max(1.0, end - warmup));
  });
}

struct Wave {
  double warmup;
  double length;
  double cycles;

  Wave(const Request& request, double default_cycles)
      : warmup(request.warmup),
        length(std::max(1.0, request.training - request.warmup)),
        cycles(request.options.num_cycles.value_or(default_cycles)) {}
  double progress(double step) const { return (step - warmup) / length; }
};

Schedule cosine_down(const Request& request) {
  return warmed_up(request.warmup, [wave = Wave(request, 0.5)](double step) {
    return std::max(0.0, cosine(wave.progress(step), wave.cycles));
  });
}

Schedule cosine_with_restarts(const Request& request) {
  return warmed_up(request.warmup, [wave = Wave(request, 1)](double step) {
    const double progress = wave.progress(step);
    if (progress >= 1.0) return 0.0;
    return std::max(0.0, 0.5 * (1.0 + std::cos(pi * std::fmod(wave.cycles * progress, 1.0))));
  });
}

Schedule polynomial(const Request& request) {
  const double start = request.default_lr;
  const double end = request.options.lr_end.value_or(1e-7);
  const double power = request.options.power.value_or(1.0);
  if (start <= end) {
    refuse_schedule("lr_end " + std::to_string(end) +
                    " must be smaller than the default rate of the optimizer, " +
                    std::to_string(start));
  }
  return warmed_up(request.warmup,
                   [=, warmup = request.warmup, training = request.training](double step) {
                     if (step > training || training <= warmup) return end / start;
                     const double left = 1 - (step - warmup) / (training - warmup);
                     return ((start - end) * std::pow(left, power) + end) / start;
                   });
}

Schedule constant(const Request& /*request*/) {
  return lambda_lr([](int64_t /*step*/) { return 1.0; });
}

Schedule constant_with_warmup(const Request& request) {
  return warmed_up(request.warmup, [](double /*step*/) { return 1.0; });
}

Schedule inverse_sqrt(const Request& request) {
  const double fallback = request.warmup > 0 ? request.warmup : 10'000;
  const double timescale =
      request.options.timescale ? static_cast<double>(*request.options.timescale) : fallback;
  if (timescale <= 0) refuse_schedule("timescale must be positive");
  return warmed_up(request.warmup, [=, warmup = request.warmup](double step) {
    return 1.0 / std::sqrt((step + timescale - warmup) / timescale);
  });
}

// The share of the rate that is left at the bottom of the wave.
double lowest_share(const Request& request) {
  const auto& [min_lr, min_lr_rate] =
      std::pair(request.options.min_lr, request.options.min_lr_rate);
  if (min_lr && min_lr_rate) {
    refuse_schedule("min_lr and min_lr_rate say the same", "give one of them");
  }
  if (min_lr_rate) return *min_lr_rate;
  if (min_lr && request.default_lr == 0) {
    refuse_schedule("min_lr has no share of a default rate of 0", "give min_lr_rate");
  }
  if (min_lr) return *min_lr / request.default_lr;
  refuse_schedule("neither min_lr nor min_lr_rate", "give one of them");
}

double above(double lowest, double factor) { return std::max(0.0, factor * (1 - lowest) + lowest); }

Schedule cosine_with_min_lr(const Request& request) {
  const double lowest = lowest_share(request);
  return warmed_up(request.warmup, [=, wave = Wave(request, 0.5)](double step) {
    return above(lowest, cosine(wave.progress(step), wave.cycles));
  });
}

Schedule cosine_warmup_with_min_lr(const Request& request) {
  const double lowest = lowest_share(request);
  const std::optional<double> first = request.options.warmup_lr_rate;
  return named_lambda_lr([=, wave = Wave(request, 0.5)](int64_t at) {
    const auto step = static_cast<double>(at);
    if (step >= wave.warmup) return above(lowest, cosine(wave.progress(step + 1), wave.cycles));
    if (!first) return ramp(step + 1, wave.warmup);
    return *first + (1.0 - *first) * step / std::max(1.0, wave.warmup - 1);
  });
}

using Shape = double (*)(double progress, double cycles);

// A way up or down, by its name; the option is named where there is no such way.
Shape shape_of(const std::string& name, const char* option,
               const std::vector<std::pair<std::string, Shape>>& known) {
  std::string names;
  for (const auto& [other, shape] : known) {
    if (other == name) return shape;
    names += (names.empty() ? "" : ", ") + other;
  }
  refuse_schedule(std::string(option) + " must be one of " + names + ", not " + name);
}

Shape warmup_shape(const SchedulerOptions& options) {
  return shape_of(
      options.warmup_type.value_or("linear"), "warmup_type",
      {{"linear", [](double progress, double) { return progress; }},
       {"cosine", [](double progress, double) { return 0.5 * (1.0 - std::cos(pi * progress)); }},
       {"1-sqrt", [](double progress, double) { return 1.0 - std::sqrt(1.0 - progress); }}});
}

Shape decay_shape(const SchedulerOptions& options) {
  return shape_of(options.decay_type.value_or("cosine"), "decay_type",
                  {{"linear", [](double progress, double) { return 1.0 - progress; }},
                   {"cosine", cosine},
                   {"1-sqrt", [](double progress, double) { return 1.0 - std::sqrt(progress); }}});
}

Schedule warmup_stable_decay(const Request& request) {
  const SchedulerOptions& options = request.options;
  if (!options.decay_steps) refuse_schedule("warmup_stable_decay needs decay_steps");
  if (!options.stable_steps && !options.training_steps) {
    refuse_schedule("warmup_stable_decay needs training_steps or stable_steps");
  }
  const auto decay = static_cast<double>(*options.decay_steps);
  const double stable = options.stable_steps ? static_cast<double>(*options.stable_steps)
                                             : request.training - request.warmup - decay;
  const double lowest = options.min_lr_ratio.value_or(0.0);
  const double cycles = options.num_cycles.value_or(0.5);
  return named_lambda_lr([=, up = warmup_shape(options), down = decay_shape(options),
                          warmup = request.warmup](int64_t at) {
    const auto step = static_cast<double>(at);
    if (step < warmup) return above(lowest, up(ramp(step, warmup), cycles));
    const double into_decay = step - warmup - stable;
    if (into_decay < 0) return 1.0;
    if (into_decay >= decay) return lowest;
    return above(lowest, down(into_decay / std::max(1.0, decay), cycles));
  });
}

Schedule by_plateau(const Request& request) {
  return reduce_lr_on_plateau(request.options.plateau.value_or(PlateauOptions{}));
}

Schedule by_greed(const Request& request) {
  return greedy_lr(request.options.greedy.value_or(GreedyOptions{}));
}

// The options by name, and whether they are given.
std::vector<std::pair<std::string, bool>> given(const SchedulerOptions& options) {
  return {{"warmup_steps", options.warmup_steps.has_value()},
          {"training_steps", options.training_steps.has_value()},
          {"num_cycles", options.num_cycles.has_value()},
          {"lr_end", options.lr_end.has_value()},
          {"power", options.power.has_value()},
          {"timescale", options.timescale.has_value()},
          {"min_lr", options.min_lr.has_value()},
          {"min_lr_rate", options.min_lr_rate.has_value()},
          {"warmup_lr_rate", options.warmup_lr_rate.has_value()},
          {"decay_steps", options.decay_steps.has_value()},
          {"stable_steps", options.stable_steps.has_value()},
          {"warmup_type", options.warmup_type.has_value()},
          {"decay_type", options.decay_type.has_value()},
          {"min_lr_ratio", options.min_lr_ratio.has_value()},
          {"plateau", options.plateau.has_value()},
          {"greedy", options.greedy.has_value()}};
}

struct NamedSchedule {
  std::string name;
  Schedule (*make)(const Request& request);
  std::set<std::string> needs;
  std::set<std::string> takes;  // beside what it needs
};

const std::vector<NamedSchedule>& registry() {
  const std::set<std::string> both{"warmup_steps", "training_steps"};
  const std::set<std::string> warmup{"warmup_steps"};
  static const std::vector<NamedSchedule> table{
      {"linear", linear, both, {}},
      {"cosine", cosine_down, both, {"num_cycles"}},
      {"cosine_with_restarts", cosine_with_restarts, both, {"num_cycles"}},
      {"polynomial", polynomial, both, {"lr_end", "power"}},
      // training_steps is ignored where the rate does not depend on it, so that the name can be
      // exchanged without touching the rest of a program.
      {"constant", constant, {}, both},
      {"constant_with_warmup", constant_with_warmup, warmup, {"training_steps"}},
      {"inverse_sqrt", inverse_sqrt, warmup, {"training_steps", "timescale"}},
      {"reduce_lr_on_plateau", by_plateau, {}, {"warmup_steps", "training_steps", "plateau"}},
      {"cosine_with_min_lr", cosine_with_min_lr, both, {"num_cycles", "min_lr", "min_lr_rate"}},
      {"cosine_warmup_with_min_lr",
       cosine_warmup_with_min_lr,
       both,
       {"num_cycles", "min_lr", "min_lr_rate", "warmup_lr_rate"}},
      {"warmup_stable_decay",
       warmup_stable_decay,
       {"warmup_steps", "decay_steps"},
       {"training_steps", "stable_steps", "warmup_type", "decay_type", "min_lr_ratio",
        "num_cycles"}},
      {"greedy", by_greed, {}, {"warmup_steps", "training_steps", "greedy"}}};
  return table;
}

const NamedSchedule& find_schedule(std::string_view name) {
  std::string names;
  for (const NamedSchedule& known : registry()) {
    if (known.name == name) return known;
    names += (names.empty() ? "" : ", ") + known.name;
  }
  refuse_schedule("unknown schedule '" + std::string(name) + "'", "use one of " + names);
}

void require_options(const NamedSchedule& schedule, const SchedulerOptions& options) {
  for (const auto& [option, is_given] : given(options)) {
    const bool needed = schedule.needs.count(option) > 0;
    if (needed && !is_given) {
      refuse_schedule(schedule.name + " needs " + option, "pass {." + option + " = ...}");
    }
    if (is_given && !needed && schedule.takes.count(option) == 0) {
      refuse_schedule(schedule.name + " takes no " + option, "leave it out");
    }
  }
  const std::pair<const char*, std::optional<int64_t>> counts[] = {
      {"warmup_steps", options.warmup_steps},
      {"training_steps", options.training_steps},
      {"decay_steps", options.decay_steps},
      {"stable_steps", options.stable_steps}};
  for (const auto& [option, steps] : counts) {
    if (steps.value_or(0) >= 0) continue;
    refuse_schedule(std::string(option) + " must be 0 or more, got " + std::to_string(*steps),
                    "count the steps of the whole training");
  }
}

}  // namespace

Scheduler get_scheduler(std::string_view name, torch::optim::Optimizer& optimizer,
                        const SchedulerOptions& options) {
  const NamedSchedule& schedule = find_schedule(name);
  require_options(schedule, options);
  const Request request{.options = options,
                        .warmup = static_cast<double>(options.warmup_steps.value_or(0)),
                        .training = static_cast<double>(options.training_steps.value_or(0)),
                        .default_lr = std::as_const(optimizer).defaults().get_lr()};
  return Scheduler(optimizer, schedule.make(request));
}

}  // namespace accelerate
