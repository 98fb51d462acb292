// Schedules that bring the rate down (or up) once: step, milestones, constant, line, powers,
// cosine.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <numbers>
#include <system_error>

#include "optim/schedule_rule.h"

namespace accelerate {
namespace {

using std::numbers::pi;

void require(bool condition, const char* what) {
  if (!condition) refuse_schedule(what);
}

class StepRule final : public EpochRule {
 public:
  explicit StepRule(const StepLrOptions& options)
      : step_size_(options.step_size), gamma_(options.gamma) {
    check_options();
  }
  Schedule copy() const override { return std::make_shared<StepRule>(*this); }
  void visit(StateFields& fields) override {
    fields("step_size", step_size_);
    fields("gamma", gamma_);
    EpochRule::visit(fields);
  }

 private:
  void check_options() const override { require(step_size_ > 0, "step_size must be positive"); }
  double next_lr(const GroupRate& group, double /*base_lr*/, size_t /*index*/) const override {
    return epoch() == 0 || epoch() % step_size_ != 0 ? group.lr : group.lr * gamma_;
  }
  double lr_from_base(const GroupRate& /*group*/, double base_lr, size_t /*index*/) const override {
    return base_lr * std::pow(gamma_, epoch() / step_size_);
  }

  int64_t step_size_;
  double gamma_;
};

// A milestone as the state has it: a text.
int64_t step_of(const std::string& milestone) {
  int64_t step = 0;
  const char* end = milestone.data() + milestone.size();
  const auto [rest, error] = std::from_chars(milestone.data(), end, step);
  if (error != std::errc() || rest != end) {
    refuse_state("the saved schedule has the milestone '" + milestone + "', which is not a step",
                 "load a state that a schedule of this kind has saved");
  }
  return step;
}

class MultiStepRule final : public EpochRule {
 public:
  explicit MultiStepRule(const MultiStepLrOptions& options) : gamma_(options.gamma) {
    for (const int64_t milestone : options.milestones) ++milestones_[milestone];
  }
  Schedule copy() const override { return std::make_shared<MultiStepRule>(*this); }
  void visit(StateFields& fields) override {
    if (StateDict* to = fields.to()) {
      StateDict counts;
      for (const auto& [milestone, count] : milestones_) {
        counts.set(std::to_string(milestone), count);
      }
      to->set("milestones", counts);
    } else {
      milestones_.clear();
      for (const auto& [milestone, count] : fields.saved("milestones").as_dict().entries()) {
        milestones_[step_of(milestone)] = count.as_integer();
      }
    }
    fields("gamma", gamma_);
    EpochRule::visit(fields);
  }

 private:
  double next_lr(const GroupRate& group, double /*base_lr*/, size_t /*index*/) const override {
    const auto found = milestones_.find(epoch());
    if (found == milestones_.end()) return group.lr;
    return group.lr * std::pow(gamma_, found->second);
  }
  double lr_from_base(const GroupRate& /*group*/, double base_lr, size_t /*index*/) const override {
    double passed = 0;
    for (const auto& [milestone, count] : milestones_) {
      if (milestone <= epoch()) passed += static_cast<double>(count);
    }
    return base_lr * std::pow(gamma_, passed);
  }

  std::map<int64_t, int64_t> milestones_;  // and how often each is listed
  double gamma_;
};

class ConstantRule final : public EpochRule {
 public:
  explicit ConstantRule(const ConstantLrOptions& options)
      : factor_(options.factor), total_iters_(options.total_iters) {
    check_options();
  }
  Schedule copy() const override { return std::make_shared<ConstantRule>(*this); }
  void visit(StateFields& fields) override {
    fields("factor", factor_);
    fields("total_iters", total_iters_);
    EpochRule::visit(fields);
  }

 private:
  void check_options() const override {
    require(factor_ >= 0 && factor_ <= 1, "factor must be between 0 and 1");
  }
  double next_lr(const GroupRate& group, double /*base_lr*/, size_t /*index*/) const override {
    if (epoch() == 0) return group.lr * factor_;
    if (epoch() != total_iters_) return group.lr;
    if (factor_ == 0) {
      refuse_schedule("constant_lr with the factor 0 cannot get back to the initial rate",
                      "let another schedule begin at total_iters, with sequential_lr");
    }
    return group.lr * (1.0 / factor_);
  }
  double lr_from_base(const GroupRate& /*group*/, double base_lr, size_t /*index*/) const override {
    return epoch() >= total_iters_ ? base_lr : base_lr * factor_;
  }

  double factor_;
  int64_t total_iters_;
};

class LinearRule final : public EpochRule {
 public:
  explicit LinearRule(const LinearLrOptions& options)
      : start_factor_(options.start_factor),
        end_factor_(options.end_factor),
        total_iters_(options.total_iters) {
    check_options();
  }
  Schedule copy() const override { return std::make_shared<LinearRule>(*this); }
  void visit(StateFields& fields) override {
    fields("start_factor", start_factor_);
    fields("end_factor", end_factor_);
    fields("total_iters", total_iters_);
    EpochRule::visit(fields);
  }

 private:
  void check_options() const override {
    require(start_factor_ > 0 && start_factor_ <= 1,
            "start_factor must be greater than 0 and at most 1");
    require(end_factor_ >= 0 && end_factor_ <= 1, "end_factor must be between 0 and 1");
    require(total_iters_ > 0, "total_iters must be positive");
  }
  double next_lr(const GroupRate& group, double /*base_lr*/, size_t /*index*/) const override {
    if (epoch() == 0) return group.lr * start_factor_;
    if (epoch() > total_iters_) return group.lr;
    const double rise = end_factor_ - start_factor_;
    return group.lr * (1.0 + rise / (static_cast<double>(total_iters_) * start_factor_ +
                                     static_cast<double>(epoch() - 1) * rise));
  }
  double lr_from_base(const GroupRate& /*group*/, double base_lr, size_t /*index*/) const override {
    const auto done = static_cast<double>(std::min(total_iters_, epoch()));
    return base_lr * (start_factor_ +
                      (end_factor_ - start_factor_) * done / static_cast<double>(total_iters_));
  }

  double start_factor_;
  double end_factor_;
  int64_t total_iters_;
};

class ExponentialRule final : public EpochRule {
 public:
  explicit ExponentialRule(const ExponentialLrOptions& options) : gamma_(options.gamma) {}
  Schedule copy() const override { return std::make_shared<ExponentialRule>(*this); }
  void visit(StateFields& fields) override {
    fields("gamma", gamma_);
    EpochRule::visit(fields);
  }

 private:
  double next_lr(const GroupRate& group, double /*base_lr*/, size_t /*index*/) const override {
    return is_initial() ? group.lr : group.lr * gamma_;
  }
  double lr_from_base(const GroupRate& /*group*/, double base_lr, size_t /*index*/) const override {
    return base_lr * std::pow(gamma_, epoch());
  }

  double gamma_;
};

class PolynomialRule final : public EpochRule {
 public:
  explicit PolynomialRule(const PolynomialLrOptions& options)
      : total_iters_(options.total_iters), power_(options.power) {
    check_options();
  }
  Schedule copy() const override { return std::make_shared<PolynomialRule>(*this); }
  void visit(StateFields& fields) override {
    fields("total_iters", total_iters_);
    fields("power", power_);
    EpochRule::visit(fields);
  }

 private:
  void check_options() const override { require(total_iters_ > 0, "total_iters must be positive"); }
  double left_at(int64_t step) const {
    return 1.0 -
           static_cast<double>(std::min(total_iters_, step)) / static_cast<double>(total_iters_);
  }
  double next_lr(const GroupRate& group, double /*base_lr*/, size_t /*index*/) const override {
    if (is_initial() || epoch() > total_iters_) return group.lr;
    return group.lr * std::pow(left_at(epoch()) / left_at(epoch() - 1), power_);
  }
  double lr_from_base(const GroupRate& /*group*/, double base_lr, size_t /*index*/) const override {
    return base_lr * std::pow(left_at(epoch()), power_);
  }

  int64_t total_iters_;
  double power_;
};

class CosineRule final : public EpochRule {
 public:
  explicit CosineRule(const CosineAnnealingLrOptions& options)
      : t_max_(options.t_max), eta_min_(options.eta_min) {
    check_options();
  }
  Schedule copy() const override { return std::make_shared<CosineRule>(*this); }
  void visit(StateFields& fields) override {
    fields("T_max", t_max_);
    fields("eta_min", eta_min_);
    EpochRule::visit(fields);
  }

 private:
  void check_options() const override { require(t_max_ > 0, "t_max must be positive"); }
  double wave_at(int64_t step) const {
    return 1 + std::cos(pi * static_cast<double>(step) / static_cast<double>(t_max_));
  }
  double next_lr(const GroupRate& group, double base_lr, size_t /*index*/) const override {
    if (is_initial()) return group.lr;
    // From the bottom of the wave there is no ratio to go by.
    if (epoch() > t_max_ && (epoch() - 1 - t_max_) % (2 * t_max_) == 0) {
      return group.lr + (base_lr - eta_min_) * (1 - std::cos(pi / static_cast<double>(t_max_))) / 2;
    }
    return wave_at(epoch()) / wave_at(epoch() - 1) * (group.lr - eta_min_) + eta_min_;
  }
  double lr_from_base(const GroupRate& /*group*/, double base_lr, size_t /*index*/) const override {
    return eta_min_ + (base_lr - eta_min_) * wave_at(epoch()) / 2;
  }

  int64_t t_max_;
  double eta_min_;
};

}  // namespace

Schedule step_lr(const StepLrOptions& options) { return std::make_shared<StepRule>(options); }
Schedule multi_step_lr(const MultiStepLrOptions& options) {
  return std::make_shared<MultiStepRule>(options);
}
Schedule constant_lr(const ConstantLrOptions& options) {
  return std::make_shared<ConstantRule>(options);
}
Schedule linear_lr(const LinearLrOptions& options) { return std::make_shared<LinearRule>(options); }
Schedule exponential_lr(const ExponentialLrOptions& options) {
  return std::make_shared<ExponentialRule>(options);
}
Schedule polynomial_lr(const PolynomialLrOptions& options) {
  return std::make_shared<PolynomialRule>(options);
}
Schedule cosine_annealing_lr(const CosineAnnealingLrOptions& options) {
  return std::make_shared<CosineRule>(options);
}

}  // namespace accelerate
