// Schedules that go by a metric: reduce_lr_on_plateau and greedy_lr.
#include <algorithm>
#include <limits>
#include <numeric>

#include "optim/schedule_rule.h"

namespace accelerate {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Which of two metrics is better.
struct Comparison {
  Comparison(std::string mode, double threshold, std::string threshold_mode)
      : mode(std::move(mode)), threshold(threshold), threshold_mode(std::move(threshold_mode)) {
    check();
  }

  void check() const {
    if (mode != "min" && mode != "max") refuse_schedule("mode must be min or max, not " + mode);
    if (threshold_mode != "rel" && threshold_mode != "abs") {
      refuse_schedule("threshold_mode must be rel or abs, not " + threshold_mode);
    }
  }

  bool better(double metric, double best) const {
    const bool relative = threshold_mode == "rel";
    if (mode == "min") return metric < (relative ? best * (1.0 - threshold) : best - threshold);
    return metric > (relative ? best * (threshold + 1.0) : best + threshold);
  }
  double worst() const { return mode == "min" ? kInfinity : -kInfinity; }

  std::string mode;
  double threshold;
  std::string threshold_mode;
};

class MetricRule : public ScheduleRule {
 public:
  explicit MetricRule(double factor) : factor_(factor) { MetricRule::check_options(); }

  bool needs_metric() const override { return true; }
  void step(GroupRates& /*rates*/) override {
    refuse_schedule("this schedule needs a metric", "call step(metric)");
  }
  // Metrics come at no fixed pace: there is no course to restart, and no steps to count.
  void restart(GroupRates& rates) override { start(rates); }
  void start_again(GroupRates& rates) override { start(rates); }
  void undo_start() override {}
  int64_t step_count() const override { return epoch_ + 1; }
  void add_to_step_count(int64_t /*steps*/) override {}
  int64_t last_epoch() const override { return epoch_; }
  std::vector<double> last_lr() const override { return last_lrs_; }

 protected:
  void check_options() const override {
    if (!(factor_ < 1.0)) refuse_schedule("factor must be less than 1");
  }
  void check_groups(size_t groups) const override {
    require_value_a_group("_last_lr", last_lrs_, groups);
    require_count("last_epoch", epoch_);
  }

  double factor_;
  int64_t epoch_ = 0;
  std::vector<double> last_lrs_;
};

class PlateauRule final : public MetricRule {
 public:
  explicit PlateauRule(const PlateauOptions& options)
      : MetricRule(options.factor),
        compare_(options.mode, options.threshold, options.threshold_mode),
        min_lr_(options.min_lr),
        patience_(options.patience),
        cooldown_(options.cooldown),
        eps_(options.eps),
        best_(compare_.worst()) {}
  Schedule copy() const override { return std::make_shared<PlateauRule>(*this); }

  void start(GroupRates& rates) override {
    min_lrs_ = min_lr_.for_groups(rates.groups.size(), "min_lr");
    last_lrs_ = rates.lrs();
  }

  void step_to(GroupRates& rates, double metric) override {
    ++epoch_;
    if (compare_.better(metric, best_)) {
      best_ = metric;
      bad_epochs_ = 0;
    } else {
      ++bad_epochs_;
    }
    if (cooldown_left_ > 0) {
      --cooldown_left_;
      bad_epochs_ = 0;
    }
    if (bad_epochs_ > patience_) {
      reduce(rates);
      cooldown_left_ = cooldown_;
      bad_epochs_ = 0;
    }
    last_lrs_ = rates.lrs();
  }

  void visit(StateFields& fields) override {
    fields("factor", factor_);
    const std::optional<double> min_lr = min_lr_.for_all();
    fields.constant("default_min_lr", min_lr ? StateValue(*min_lr) : StateValue());
    fields("min_lrs", min_lrs_);
    fields("patience", patience_);
    fields("cooldown", cooldown_);
    fields("eps", eps_);
    fields("last_epoch", epoch_);
    fields("_last_lr", last_lrs_);
    fields.constant("mode_worse", compare_.worst());
    fields("mode", compare_.mode);
    fields("threshold", compare_.threshold);
    fields("threshold_mode", compare_.threshold_mode);
    fields("best", best_);
    fields("cooldown_counter", cooldown_left_);
    fields("num_bad_epochs", bad_epochs_);
  }

 private:
  void check_options() const override {
    MetricRule::check_options();
    compare_.check();
  }
  void check_groups(size_t groups) const override {
    MetricRule::check_groups(groups);
    require_value_a_group("min_lrs", min_lrs_, groups);
    require_count("num_bad_epochs", bad_epochs_);
  }

  void reduce(GroupRates& rates) {
    for (size_t i = 0; i < rates.groups.size(); ++i) {
      double& lr = rates.groups[i].lr;
      const double reduced = std::max(lr * factor_, min_lrs_.at(i));
      if (lr - reduced > eps_) lr = reduced;
    }
  }

  Comparison compare_;
  GroupValues min_lr_;
  std::vector<double> min_lrs_;
  int64_t patience_;
  int64_t cooldown_;
  double eps_;
  double best_;
  int64_t cooldown_left_ = 0;
  int64_t bad_epochs_ = 0;
};

// The mean of the latest metrics.
class RunningMean {
 public:
  explicit RunningMean(int64_t window) : window_(window) {}

  void check() const {
    if (window_ < 1) refuse_schedule("window_size must be positive");
    if (values_.size() > static_cast<size_t>(window_)) {
      refuse_schedule(std::to_string(values_.size()) + " metrics in a window of " +
                      std::to_string(window_));
    }
  }

  double add(double value) {
    values_.push_back(value);
    sum_ += value;
    if (values_.size() > static_cast<size_t>(window_)) {
      sum_ -= values_.front();
      values_.erase(values_.begin());
    }
    return sum_ / static_cast<double>(values_.size());
  }
  void clear() {
    values_.clear();
    sum_ = 0;
  }
  void visit(StateFields& fields) {
    if (fields.reads()) {
      StateFields own = StateFields::reading(fields.saved("_streaming_avg").as_dict());
      visit_own(own);
      return;
    }
    StateDict state;
    StateFields own = StateFields::writing(state);
    visit_own(own);
    fields.constant("_streaming_avg", std::move(state));
  }

 private:
  void visit_own(StateFields& fields) {
    fields("window_size", window_);
    fields("values", values_);
    fields("sum", sum_);
  }

  int64_t window_;
  std::vector<double> values_;
  double sum_ = 0;
};

class GreedyRule final : public MetricRule {
 public:
  explicit GreedyRule(const GreedyOptions& options)
      : MetricRule(options.factor),
        options_(options),
        compare_(options.mode, options.threshold, options.threshold_mode),
        mean_(options.window_size),
        best_(compare_.worst()),
        reductions_left_(options.reset_start) {
    check_options();
  }
  Schedule copy() const override { return std::make_shared<GreedyRule>(*this); }

  void start(GroupRates& rates) override {
    min_lrs_ = options_.min_lr.for_groups(rates.groups.size(), "min_lr");
    max_lrs_ = options_.max_lr.for_groups(rates.groups.size(), "max_lr");
    initial_lrs_ = last_lrs_ = rates.lrs();
  }

  void step_to(GroupRates& rates, double metric) override {
    if (options_.smooth) metric = mean_.add(metric);
    ++epoch_;
    if (cooldown_left_ > 0 || warmup_left_ > 0) {
      --(cooldown_left_ > 0 ? cooldown_left_ : warmup_left_);
      bad_epochs_ = good_epochs_ = 0;
    } else {
      judge(rates, metric);
    }
    last_lrs_ = rates.lrs();
  }

  void visit(StateFields& fields) override {
    fields("factor", factor_);
    fields("min_lrs", min_lrs_);
    fields("max_lrs", max_lrs_);
    fields("patience", options_.patience);
    fields.constant("verbose", false);
    fields("cooldown", options_.cooldown);
    fields("warmup", options_.warmup);
    fields("cooldown_counter", cooldown_left_);
    fields("warmup_counter", warmup_left_);
    fields("mode", compare_.mode);
    fields("threshold", compare_.threshold);
    fields("threshold_mode", compare_.threshold_mode);
    fields("best", best_);
    fields("num_bad_epochs", bad_epochs_);
    fields("num_good_epochs", good_epochs_);
    fields("eps", options_.eps);
    fields("last_epoch", epoch_);
    fields("smooth", options_.smooth);
    fields("window_size", options_.window_size);
    fields("reset_start", reductions_left_);
    fields("reset_start_original", options_.reset_start);
    fields("_last_lr", last_lrs_);
    fields("_init_lrs", initial_lrs_);
    if (options_.smooth) mean_.visit(fields);
  }

 private:
  void check_options() const override {
    MetricRule::check_options();
    compare_.check();
    mean_.check();
  }
  void check_groups(size_t groups) const override {
    MetricRule::check_groups(groups);
    require_value_a_group("min_lrs", min_lrs_, groups);
    require_value_a_group("max_lrs", max_lrs_, groups);
    require_value_a_group("_init_lrs", initial_lrs_, groups);
    require_count("num_bad_epochs", bad_epochs_);
    require_count("num_good_epochs", good_epochs_);
  }

  void judge(GroupRates& rates, double metric) {
    if (compare_.better(metric, best_)) {
      best_ = metric;
      bad_epochs_ = 0;
      ++good_epochs_;
    } else {
      ++bad_epochs_;
      good_epochs_ = 0;
    }
    if (good_epochs_ > options_.patience) {
      increase(rates);
      warmup_left_ = options_.warmup;
      good_epochs_ = 0;
    } else if (bad_epochs_ > options_.patience) {
      reduce(rates);
      cooldown_left_ = options_.cooldown;
      bad_epochs_ = 0;
    }
  }

  void increase(GroupRates& rates) {
    for (size_t i = 0; i < rates.groups.size(); ++i) {
      double& lr = rates.groups[i].lr;
      const double increased = std::min(lr / factor_, max_lrs_.at(i));
      if (increased - lr > options_.eps) lr = increased;
    }
    reductions_left_ = options_.reset_start;
  }

  void reduce(GroupRates& rates) {
    bool all_at_minimum = true;
    for (size_t i = 0; i < rates.groups.size(); ++i) {
      double& lr = rates.groups[i].lr;
      const double reduced = std::max(lr * factor_, min_lrs_.at(i));
      if (lr - reduced > options_.eps) lr = reduced;
      if (lr > min_lrs_[i]) all_at_minimum = false;
    }
    if (!all_at_minimum) return;
    if (reductions_left_ <= 1) return begin_anew(rates);
    --reductions_left_;
  }

  void begin_anew(GroupRates& rates) {
    for (size_t i = 0; i < rates.groups.size(); ++i) rates.groups[i].lr = initial_lrs_.at(i);
    best_ = compare_.worst();
    bad_epochs_ = good_epochs_ = cooldown_left_ = warmup_left_ = 0;
    reductions_left_ = options_.reset_start;
    mean_.clear();
  }

  GreedyOptions options_;
  Comparison compare_;
  RunningMean mean_;
  std::vector<double> min_lrs_, max_lrs_, initial_lrs_;
  double best_;
  int64_t cooldown_left_ = 0;
  int64_t warmup_left_ = 0;
  int64_t bad_epochs_ = 0;
  int64_t good_epochs_ = 0;
  int64_t reductions_left_;
};

}  // namespace

Schedule reduce_lr_on_plateau(const PlateauOptions& options) {
  return std::make_shared<PlateauRule>(options);
}
Schedule greedy_lr(const GreedyOptions& options) { return std::make_shared<GreedyRule>(options); }

}  // namespace accelerate
