// What a schedule is made of: how the rates of the parameter groups go from step to step.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "accelerate/schedules.h"
#include "accelerate/state_dict.h"

namespace accelerate {

// What a schedule sees and sets of one parameter group.
struct GroupRate {
  double lr = 0;
  // The rate at the beginning, from which schedules compute; some set another one.
  double initial_lr = 0;
  // Momentum, or beta1; nothing where the optimizer has neither.
  std::optional<double> momentum{};
};

// All groups of the optimizer.
struct GroupRates {
  std::vector<GroupRate> groups;
  bool momentum_is_beta1 = false;

  std::vector<double> lrs() const;
};

// Writes fields to a StateDict or reads them from one, so that a rule lists its fields once.
class StateFields {
 public:
  static StateFields writing(StateDict& to) { return StateFields(&to, nullptr); }
  static StateFields reading(const StateDict& from) { return StateFields(nullptr, &from); }

  bool reads() const { return from_ != nullptr; }
  // Reading throws CheckpointError if the field is missing or of another kind.
  void operator()(const char* key, double& value);
  void operator()(const char* key, int64_t& value);
  void operator()(const char* key, bool& value);
  void operator()(const char* key, std::string& value);
  void operator()(const char* key, std::vector<double>& value);
  void operator()(const char* key, std::vector<int64_t>& value);
  // What torch writes too and nobody reads back.
  void constant(const char* key, StateValue value);
  // For fields of another shape: where they are written, null while reading, and what was saved.
  StateDict* to() const { return to_; }
  const StateValue& saved(const char* key);
  // Throws CheckpointError if the state has an entry that was not asked for: then a schedule of
  // another kind has saved it. What begins with an underscore is torch's bookkeeping, which differs
  // between its versions, and so is "verbose".
  void require_no_others() const;

 private:
  StateFields(StateDict* to, const StateDict* from) : to_(to), from_(from) {}
  template <class T, class Read>
  void field(const char* key, T& value, Read read);

  StateDict* to_;
  const StateDict* from_;
  std::set<std::string_view> asked_{};  // names of fields, which are literals
};

// The life of a rule: start() once, then step()s. Rules that belong to others are also restarted.
class ScheduleRule {
 public:
  virtual ~ScheduleRule() = default;

  // Takes the initial rates and sets those of step 0.
  virtual void start(GroupRates& rates) = 0;
  virtual void step(GroupRates& rates) = 0;
  virtual void step_to(GroupRates& rates, double metric_or_epoch);
  virtual bool needs_metric() const { return false; }

  // The rates of step 0 again, as the current ones.
  virtual void restart(GroupRates& rates) = 0;
  // Takes back the step that start() made, and makes it again: sequential_lr wants it so.
  virtual void undo_start() = 0;
  virtual void start_again(GroupRates& rates) = 0;

  virtual int64_t last_epoch() const = 0;
  virtual int64_t step_count() const = 0;
  virtual void add_to_step_count(int64_t steps) = 0;
  virtual std::vector<double> last_lr() const = 0;
  virtual std::optional<int64_t> total_steps() const { return std::nullopt; }

  // Names all that state_dict() of torch has for this schedule. A state is read into a copy() and
  // checked before it counts: reading stops at the first field that is missing.
  virtual void visit(StateFields& fields) = 0;
  virtual Schedule copy() const = 0;
  // Called on a copy that has read a state when it becomes the rule of its scheduler. What it
  // throws prevents that; nothing has changed then.
  virtual void take_effect() {}
  // Throws UsageError or CheckpointError where what was read makes no schedule for an optimizer
  // with that many groups.
  void check(size_t groups) const {
    check_options();
    check_groups(groups);
  }

  // Throws UsageError the second time: a rule has one course.
  void take();

 protected:
  // What the constructor checks too.
  virtual void check_options() const {}
  virtual void check_groups(size_t groups) const = 0;

 private:
  bool taken_ = false;
};

// A rule as torch's LRScheduler has it: counts epochs, computes the rate of each group.
class EpochRule : public ScheduleRule {
 public:
  void start(GroupRates& rates) override;
  void step(GroupRates& rates) override;
  void restart(GroupRates& rates) override;
  void undo_start() override { --epoch_; }
  void start_again(GroupRates& rates) override;

  int64_t last_epoch() const override { return epoch_; }
  int64_t step_count() const override { return step_count_; }
  void add_to_step_count(int64_t steps) override { step_count_ += steps; }
  std::vector<double> last_lr() const override { return last_lrs_; }
  void visit(StateFields& fields) override;

 protected:
  // The rate of a group after one more step; `base_lr` is its initial one. epoch() is the new step.
  virtual double next_lr(const GroupRate& group, double base_lr, size_t index) const = 0;
  // The rate at epoch() without a step before it.
  virtual double lr_from_base(const GroupRate& group, double base_lr, size_t index) const {
    return next_lr(group, base_lr, index);
  }
  // Called before start() reads the initial rates: options for each group become known here.
  virtual void prepare(GroupRates& /*rates*/) {}
  // Called after the rates are set.
  virtual void set_momentum(GroupRates& /*rates*/) {}

  int64_t epoch() const { return epoch_; }
  // Whether this is the step that start() makes.
  bool is_initial() const { return initial_; }
  void check_groups(size_t groups) const override;
  std::vector<double>& base_lrs() { return base_lrs_; }
  void set_lrs(GroupRates& rates);
  void set_epoch(int64_t epoch) { epoch_ = epoch; }

 private:
  std::vector<double> base_lrs_;
  std::vector<double> last_lrs_;
  int64_t epoch_ = -1;
  int64_t step_count_ = 0;
  bool initial_ = false;
};

// Throws UsageError about an option of a schedule.
[[noreturn]] void refuse_schedule(const std::string& what, const std::string& hint = "");
// Throws CheckpointError about a saved state.
[[noreturn]] void refuse_state(const std::string& what, const std::string& hint);
// For the fields of a state that have a number for each group, and those that count steps: no
// training makes more than this bound, and sums stay in the range of their type.
void require_value_a_group(const char* field, const std::vector<double>& values, size_t groups);
void require_count(const char* field, int64_t steps);
constexpr int64_t kMostSteps = int64_t{1} << 53;

}  // namespace accelerate
