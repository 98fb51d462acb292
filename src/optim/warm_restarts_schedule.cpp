// Cosine waves with restarts, which also know broken epochs.
#include <cmath>
#include <numbers>

#include "optim/schedule_rule.h"

namespace accelerate {
namespace {

class WarmRestartsRule final : public EpochRule {
 public:
  explicit WarmRestartsRule(const WarmRestartsOptions& options)
      : t_0_(options.t_0), t_mult_(options.t_mult), eta_min_(options.eta_min), t_i_(options.t_0) {
    if (t_0_ <= 0) refuse_schedule("t_0 must be positive, not " + std::to_string(t_0_));
    if (t_mult_ < 1) refuse_schedule("t_mult must be at least 1, not " + std::to_string(t_mult_));
  }

  // torch does not count the steps of this schedule.
  void step(GroupRates& rates) override {
    if (epoch() < 0) return step_to(rates, 0);
    t_cur_ += 1;
    if (t_cur_ >= static_cast<double>(t_i_)) {
      t_cur_ = std::fmod(t_cur_, static_cast<double>(t_i_));
      t_i_ *= t_mult_;
    }
    set_epoch(epoch() + 1);
    set_lrs(rates);
  }

  void step_to(GroupRates& rates, double epoch) override {
    if (epoch < 0) refuse_schedule("an epoch before the first one: " + std::to_string(epoch));
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
      t_i_ = t_0_ * static_cast<int64_t>(scale);
    }
    set_epoch(static_cast<int64_t>(std::floor(epoch)));
    set_lrs(rates);
  }

  void restart(GroupRates& rates) override { step_to(rates, 0); }

  void visit(StateFields& fields) override {
    fields("T_0", t_0_);
    fields("T_i", t_i_);
    fields("T_mult", t_mult_);
    fields("eta_min", eta_min_);
    fields("T_cur", t_cur_);
    EpochRule::visit(fields);
  }

 private:
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
