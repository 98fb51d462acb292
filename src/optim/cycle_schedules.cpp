// Schedules that move the rate and the momentum against each other: one_cycle_lr and cyclic_lr.
#include <array>
#include <cmath>
#include <numbers>

#include "optim/schedule_rule.h"

namespace accelerate {
namespace {

void require_momentum(const GroupRates& rates) {
  for (const GroupRate& group : rates.groups) {
    if (group.momentum) continue;
    refuse_schedule("the optimizer has no momentum and no betas to cycle",
                    "pass {.cycle_momentum = false}");
  }
}

double anneal_by_cosine(double start, double end, double share) {
  return end + (start - end) / 2.0 * (std::cos(std::numbers::pi * share) + 1);
}
double anneal_by_line(double start, double end, double share) {
  return (end - start) * share + start;
}

int64_t length_of(const OneCycleLrOptions& options) {
  const auto positive = [](int64_t value, const char* name) {
    if (value > 0) return value;
    refuse_schedule(std::string(name) + " must be positive, not " + std::to_string(value));
  };
  if (options.total_steps) return positive(*options.total_steps, "total_steps");
  if (options.epochs && options.steps_per_epoch) {
    const int64_t epochs = positive(*options.epochs, "epochs");
    const int64_t steps = positive(*options.steps_per_epoch, "steps_per_epoch");
    if (steps > kMostSteps / epochs) refuse_schedule("more steps than any training makes");
    return epochs * steps;
  }
  refuse_schedule("one_cycle_lr does not know how long it is",
                  "give total_steps, or epochs and steps_per_epoch");
}

class OneCycleRule final : public EpochRule {
 public:
  explicit OneCycleRule(const OneCycleLrOptions& options)
      : options_(options), total_steps_(length_of(options)), strategy_(options.anneal_strategy) {
    if (!(options.pct_start >= 0 && options.pct_start <= 1)) {
      refuse_schedule("pct_start must be between 0 and 1, not " +
                      std::to_string(options.pct_start));
    }
    if (options.div_factor == 0 || options.final_div_factor == 0) {
      refuse_schedule("div_factor and final_div_factor must not be 0");
    }
    const auto length = static_cast<double>(total_steps_);
    const double up = options.pct_start * length - 1;
    if (options.three_phase) {
      phases_ = {{up, kInitial, kMax}, {2 * up, kMax, kInitial}, {length - 1, kInitial, kMin}};
    } else {
      phases_ = {{up, kInitial, kMax}, {length - 1, kMax, kMin}};
    }
    check_options();
  }
  Schedule copy() const override { return std::make_shared<OneCycleRule>(*this); }

  std::optional<int64_t> total_steps() const override { return total_steps_; }

  void step(GroupRates& rates) override {
    if (epoch() >= total_steps_) {
      refuse_schedule("step " + std::to_string(epoch() + 1) + " of a schedule of " +
                          std::to_string(total_steps_) + " steps",
                      "give one_cycle_lr the steps that the training really has");
    }
    if (epoch() + 1 == total_steps_ && phases_.back().end_step == start_of_last_phase()) {
      refuse_schedule(
          "step " + std::to_string(epoch() + 1) + " of a schedule whose last phase has no length",
          "give a smaller pct_start, or make one step fewer");
    }
    EpochRule::step(rates);
  }

  void visit(StateFields& fields) override {
    fields("total_steps", total_steps_);
    visit_phases(fields);
    fields("_anneal_func_type", strategy_);
    fields("cycle_momentum", options_.cycle_momentum);
    if (options_.cycle_momentum) fields.constant("use_beta1", uses_beta1_);
    EpochRule::visit(fields);
  }

 private:
  enum Bound { kInitial, kMax, kMin };
  struct Phase {
    double end_step;
    Bound start;
    Bound end;
  };

  void check_options() const override {
    if (strategy_ != "cos" && strategy_ != "linear") {
      refuse_schedule("anneal_strategy must be cos or linear, not " + strategy_);
    }
    if (total_steps_ <= 0) {
      refuse_schedule("total_steps must be positive, not " + std::to_string(total_steps_));
    }
    for (const Phase& phase : phases_) {
      if (!std::isfinite(phase.end_step)) refuse_schedule("a phase ends at no step");
    }
    if (phases_[0].end_step == 0) {
      refuse_schedule("the first phase ends at step 0, where it begins",
                      "give another pct_start: the phase ends at pct_start * total_steps - 1");
    }
  }
  void check_groups(size_t groups) const override {
    EpochRule::check_groups(groups);
    require_value_a_group("max_lr", max_lrs_, groups);
    if (!options_.cycle_momentum) return;
    require_value_a_group("base_momentum", base_momenta_, groups);
    require_value_a_group("max_momentum", max_momenta_, groups);
  }

  void prepare(GroupRates& rates) override {
    const size_t groups = rates.groups.size();
    max_lrs_ = options_.max_lr.for_groups(groups, "max_lr");
    for (size_t i = 0; i < groups; ++i) {
      rates.groups[i].initial_lr = max_lrs_[i] / options_.div_factor;
    }
    if (!options_.cycle_momentum) return;
    require_momentum(rates);
    uses_beta1_ = rates.momentum_is_beta1;
    base_momenta_ = options_.base_momentum.for_groups(groups, "base_momentum");
    max_momenta_ = options_.max_momentum.for_groups(groups, "max_momentum");
  }

  double start_of_last_phase() const { return phases_[phases_.size() - 2].end_step; }

  // The phase of this step and how much of it is over.
  std::pair<const Phase*, double> phase() const {
    const auto step = static_cast<double>(epoch());
    double start = 0;
    for (const Phase& phase : phases_) {
      if (step <= phase.end_step || &phase == &phases_.back()) {
        return {&phase, (step - start) / (phase.end_step - start)};
      }
      start = phase.end_step;
    }
    return {&phases_.back(), 1.0};
  }

  double anneal(double start, double end, double share) const {
    return strategy_ == "cos" ? anneal_by_cosine(start, end, share)
                              : anneal_by_line(start, end, share);
  }

  double next_lr(const GroupRate& /*group*/, double base_lr, size_t index) const override {
    const std::array<double, 3> bounds{base_lr, max_lrs_[index],
                                       base_lr / options_.final_div_factor};
    const auto [now, share] = phase();
    return anneal(bounds[now->start], bounds[now->end], share);
  }

  // Low where the rate is high.
  void set_momentum(GroupRates& rates) override {
    if (!options_.cycle_momentum) return;
    const auto [now, share] = phase();
    for (size_t i = 0; i < rates.groups.size(); ++i) {
      const auto bound = [&](Bound lr) { return lr == kMax ? base_momenta_[i] : max_momenta_[i]; };
      rates.groups[i].momentum = anneal(bound(now->start), bound(now->end), share);
    }
  }

  void visit_phases(StateFields& fields) {
    static constexpr std::array<const char*, 3> kLrNames{"initial_lr", "max_lr", "min_lr"};
    const auto momentum_name = [](Bound lr) {
      return lr == kMax ? "base_momentum" : "max_momentum";
    };
    if (fields.reads()) {
      const StateValue::List& saved = fields.saved("_schedule_phases").as_list();
      if (saved.size() != phases_.size()) {
        refuse_state("the saved schedule has " + std::to_string(saved.size()) + " phases, not " +
                         std::to_string(phases_.size()),
                     "make the schedule with the three_phase that it was saved with");
      }
      for (size_t i = 0; i < saved.size(); ++i) {
        phases_[i].end_step = saved[i].as_dict().at("end_step").as_number();
      }
      return;
    }
    StateValue::List list;
    for (const Phase& phase : phases_) {
      list.emplace_back(StateDict{{"end_step", phase.end_step},
                                  {"start_lr", kLrNames[phase.start]},
                                  {"end_lr", kLrNames[phase.end]},
                                  {"start_momentum", momentum_name(phase.start)},
                                  {"end_momentum", momentum_name(phase.end)}});
    }
    fields.constant("_schedule_phases", std::move(list));
  }

  OneCycleLrOptions options_;
  int64_t total_steps_;
  std::string strategy_;
  std::vector<Phase> phases_;
  std::vector<double> max_lrs_;
  std::vector<double> base_momenta_;
  std::vector<double> max_momenta_;
  bool uses_beta1_ = false;
};

class CyclicRule final : public EpochRule {
 public:
  explicit CyclicRule(const CyclicLrOptions& options)
      : options_(options), mode_(options.mode), gamma_(options.gamma) {
    const auto up = static_cast<double>(options.step_size_up);
    const auto down = static_cast<double>(options.step_size_down.value_or(options.step_size_up));
    total_size_ = up + down;
    if (up <= 0 || down <= 0) refuse_schedule("step_size_up and step_size_down must be positive");
    step_ratio_ = up / total_size_;
    check_options();
  }
  Schedule copy() const override { return std::make_shared<CyclicRule>(*this); }

  void visit(StateFields& fields) override {
    fields("max_lrs", max_lrs_);
    fields("total_size", total_size_);
    fields("step_ratio", step_ratio_);
    fields("mode", mode_);
    fields("gamma", gamma_);
    fields.constant("scale_mode", mode_ == "exp_range" ? "iterations" : "cycle");
    fields("cycle_momentum", options_.cycle_momentum);
    if (options_.cycle_momentum) {
      fields.constant("use_beta1", uses_beta1_);
      fields("base_momentums", base_momenta_);
      fields("max_momentums", max_momenta_);
    }
    EpochRule::visit(fields);
    fields.constant("_scale_fn_custom", StateValue());
  }

 private:
  void check_options() const override {
    if (!(total_size_ > 0 && std::isfinite(total_size_))) {
      refuse_schedule("a cycle of " + std::to_string(total_size_) + " steps");
    }
    if (!(step_ratio_ > 0 && step_ratio_ <= 1)) {
      refuse_schedule("a cycle that goes up for " + std::to_string(step_ratio_) + " of its length");
    }
    if (mode_ != "triangular" && mode_ != "triangular2" && mode_ != "exp_range") {
      refuse_schedule("mode must be triangular, triangular2 or exp_range, not " + mode_);
    }
  }
  void check_groups(size_t groups) const override {
    EpochRule::check_groups(groups);
    require_value_a_group("max_lrs", max_lrs_, groups);
    if (!options_.cycle_momentum) return;
    require_value_a_group("base_momentums", base_momenta_, groups);
    require_value_a_group("max_momentums", max_momenta_, groups);
  }

  void prepare(GroupRates& rates) override {
    const size_t groups = rates.groups.size();
    const std::vector<double> base_lrs = options_.base_lr.for_groups(groups, "base_lr");
    for (size_t i = 0; i < groups; ++i) {
      rates.groups[i].lr = rates.groups[i].initial_lr = base_lrs[i];
    }
    max_lrs_ = options_.max_lr.for_groups(groups, "max_lr");
    if (!options_.cycle_momentum) return;
    require_momentum(rates);
    uses_beta1_ = rates.momentum_is_beta1;
    base_momenta_ = options_.base_momentum.for_groups(groups, "base_momentum");
    max_momenta_ = options_.max_momentum.for_groups(groups, "max_momentum");
  }

  // How far from the base to the maximum, 0 to 1, times what the mode makes of it.
  double height() const {
    const double cycles = static_cast<double>(epoch()) / total_size_;
    const double cycle = std::floor(1 + cycles);
    const double x = 1.0 + cycles - cycle;
    const double part = x <= step_ratio_ ? x / step_ratio_ : (x - 1) / (step_ratio_ - 1);
    if (mode_ == "triangular2") return part / std::pow(2.0, cycle - 1);
    if (mode_ == "exp_range") return part * std::pow(gamma_, epoch());
    return part;
  }

  double next_lr(const GroupRate& /*group*/, double base_lr, size_t index) const override {
    return base_lr + (max_lrs_[index] - base_lr) * height();
  }

  void set_momentum(GroupRates& rates) override {
    if (!options_.cycle_momentum) return;
    for (size_t i = 0; i < rates.groups.size(); ++i) {
      rates.groups[i].momentum = max_momenta_[i] - (max_momenta_[i] - base_momenta_[i]) * height();
    }
  }

  CyclicLrOptions options_;
  std::string mode_;
  double gamma_;
  double total_size_ = 0;
  double step_ratio_ = 0;
  std::vector<double> max_lrs_;
  std::vector<double> base_momenta_;
  std::vector<double> max_momenta_;
  bool uses_beta1_ = false;
};

}  // namespace

Schedule one_cycle_lr(const OneCycleLrOptions& options) {
  return std::make_shared<OneCycleRule>(options);
}
Schedule cyclic_lr(const CyclicLrOptions& options) { return std::make_shared<CyclicRule>(options); }

}  // namespace accelerate
