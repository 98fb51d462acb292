// Cosine waves with restarts, which also know broken epochs.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "optim/schedule_rule.h"

namespace accelerate {
namespace {

class WarmRestartsRule final : public EpochRule {
 public:
  explicit WarmRestartsRule(const WarmRestartsOptions& options)
      : t_0_(options.t_0), t_mult_(options.t_mult), eta_min_(options.eta_min), t_i_(options.t_0) {
    check_options();
  }

  // torch does not count the steps of this schedule.
  void step(GroupRates& rates) override {
    if (epoch() < 0) return step_to(rates, 0);
    t_cur_ += 1;
    if (t_cur_ >= static_cast<double>(t_i_)) {
      t_cur_ = std::fmod(t_cur_, static_cast<double>(t_i_));
      t_i_ = length(static_cast<double>(t_i_) * static_cast<double>(t_mult_));
    }
    set_epoch(epoch() + 1);
    set_lrs(rates);
  }

  void step_to(GroupRates& rates, double epoch) override {
    if (!(epoch >= 0 && epoch <= static_cast<double>(kMostSteps))) {
      refuse_schedule("not an epoch: " + std::to_string(epoch));
    }
    const auto first = static_cast<double>(t_0_);
    const auto growth = static_cast<double>(t_mult_);
    if (epoch < first) {
      t_i_ = t_0_;
      t_cur_ = epoch;
    } else if (t_mult_ == 1) {
      t_cur_ = std::fmod(epoch, first);
    } else {
      const double waves =
          std::floor(std::log(epoch / first * (growth - 1) + 1) / std::log(growth));
      const double scale = std::pow(growth, waves);
      t_cur_ = epoch - first * (scale - 1) / (growth - 1);
      t_i_ = length(first * scale);
    }
    set_epoch(static_cast<int64_t>(std::floor(epoch)));
    set_lrs(rates);
  }

  void restart(GroupRates& rates) override { step_to(rates, 0); }
  Schedule copy() const override { return std::make_shared<WarmRestartsRule>(*this); }

  void visit(StateFields& fields) override {
    fields("T_0", t_0_);
    fields("T_i", t_i_);
    fields("T_mult", t_mult_);
    fields("eta_min", eta_min_);
    fields("T_cur", t_cur_);
    EpochRule::visit(fields);
  }

 private:
  void check_options() const override {
    if (t_0_ <= 0) refuse_schedule("t_0 must be positive, not " + std::to_string(t_0_));
    if (t_mult_ < 1) refuse_schedule("t_mult must be at least 1, not " + std::to_string(t_mult_));
  }
  void check_groups(size_t groups) const override {
    EpochRule::check_groups(groups);
    if (t_i_ > 0 && std::isfinite(t_cur_)) return;
    refuse_state("the saved schedule is at " + std::to_string(t_cur_) + " of a wave of " +
                     std::to_string(t_i_) + " steps",
                 "load a state that a schedule of this kind has saved");
  }

  // That of a wave which no training sees the end of does not matter.
  static int64_t length(double steps) {
    return static_cast<int64_t>(std::min(steps, static_cast<double>(kMostSteps)));
  }

  double next_lr(const GroupRate& /*group*/, double base_lr, size_t /*index*/) const override {
    const double wave = 1 + std::cos(std::numbers::pi * t_cur_ / static_cast<double>(t_i_));
    return eta_min_ + (base_lr - eta_min_) * wave / 2;
  }

  int64_t t_0_;
  int64_t t_mult_;
  double eta_min_;
  int64_t t_i_;
  double t_cur_ = -1;
};

}  // namespace

Schedule cosine_annealing_warm_restarts(const WarmRestartsOptions& options) {
  return std::make_shared<WarmRestartsRule>(options);
}

}  // namespace accelerate
