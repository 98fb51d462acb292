#include "optim/schedule_rule.h"

#include "accelerate/errors.h"

namespace accelerate {

void refuse_schedule(const std::string& what, const std::string& hint) {
  throw UsageError({.what = what, .where = "learning-rate schedule", .hint = hint});
}

void refuse_state(const std::string& what, const std::string& hint) {
  throw CheckpointError({.what = what, .where = "learning-rate schedule", .hint = hint});
}

void require_value_a_group(const char* field, const std::vector<double>& values, size_t groups) {
  if (values.size() == groups) return;
  refuse_state(std::string("'") + field + "' of the saved schedule is of " +
                   std::to_string(values.size()) + " parameter groups, the optimizer has " +
                   std::to_string(groups),
               "make the optimizer with the groups that it was saved with");
}

void require_count(const char* field, int64_t steps) {
  if (steps >= -kMostSteps && steps <= kMostSteps) return;
  refuse_state(std::string("'") + field + "' of the saved schedule is " + std::to_string(steps),
               "load a state that a schedule has saved");
}

std::vector<double> GroupValues::for_groups(size_t groups, const char* option) const {
  if (for_all_) return std::vector<double>(groups, values_.at(0));
  if (values_.size() != groups) {
    refuse_schedule(std::string(option) + " has " + std::to_string(values_.size()) +
                        " values, the optimizer " + std::to_string(groups) + " parameter groups",
                    "give one number for all groups, or one for each");
  }
  return values_;
}

std::vector<double> GroupRates::lrs() const {
  std::vector<double> all;
  all.reserve(groups.size());
  for (const GroupRate& group : groups) all.push_back(group.lr);
  return all;
}

template <class T, class Read>
void StateFields::field(const char* key, T& value, Read read) {
  if (to_ != nullptr) {
    to_->set(key, value);
  } else {
    value = (saved(key).*read)();
  }
}

const StateValue& StateFields::saved(const char* key) {
  asked_.insert(key);
  return from_->at(key);
}

void StateFields::require_no_others() const {
  for (const auto& [name, value] : from_->entries()) {
    if (asked_.contains(name) || name.starts_with('_') || name == "verbose") continue;
    refuse_state("the saved schedule has the entry '" + name + "': it is of another kind",
                 "make the schedule that was saved");
  }
}

void StateFields::operator()(const char* key, double& value) {
  field(key, value, &StateValue::as_number);
}
void StateFields::operator()(const char* key, int64_t& value) {
  field(key, value, &StateValue::as_integer);
}
void StateFields::operator()(const char* key, bool& value) {
  field(key, value, &StateValue::as_bool);
}
void StateFields::operator()(const char* key, std::string& value) {
  field(key, value, &StateValue::as_string);
}
void StateFields::operator()(const char* key, std::vector<double>& value) {
  field(key, value, &StateValue::as_numbers);
}
void StateFields::operator()(const char* key, std::vector<int64_t>& value) {
  field(key, value, &StateValue::as_integers);
}
void StateFields::constant(const char* key, StateValue value) {
  asked_.insert(key);
  if (to_ != nullptr) to_->set(key, std::move(value));
}

void ScheduleRule::step_to(GroupRates& /*rates*/, double /*metric_or_epoch*/) {
  refuse_schedule("this schedule takes neither a metric nor an epoch", "call step() without one");
}

void ScheduleRule::take() {
  if (taken_) {
    refuse_schedule("this schedule is already in use", "make a new one for each scheduler");
  }
  taken_ = true;
}

void EpochRule::start(GroupRates& rates) {
  prepare(rates);
  base_lrs_.clear();
  for (const GroupRate& group : rates.groups) base_lrs_.push_back(group.initial_lr);
  epoch_ = -1;
  start_again(rates);
}

void EpochRule::start_again(GroupRates& rates) {
  step_count_ = 0;
  initial_ = true;
  step(rates);
  initial_ = false;
}

void EpochRule::step(GroupRates& rates) {
  ++step_count_;
  ++epoch_;
  try {
    set_lrs(rates);
  } catch (...) {  // the step was not made
    --step_count_;
    --epoch_;
    throw;
  }
}

void EpochRule::set_lrs(GroupRates& rates) {
  for (size_t i = 0; i < rates.groups.size(); ++i) {
    rates.groups[i].lr = next_lr(rates.groups[i], base_lrs_.at(i), i);
  }
  set_momentum(rates);
  last_lrs_ = rates.lrs();
}

void EpochRule::restart(GroupRates& rates) {
  epoch_ = 0;
  for (size_t i = 0; i < rates.groups.size(); ++i) {
    rates.groups[i].lr = lr_from_base(rates.groups[i], base_lrs_.at(i), i);
  }
  set_momentum(rates);
  last_lrs_ = rates.lrs();
}

void EpochRule::visit(StateFields& fields) {
  fields("base_lrs", base_lrs_);
  fields("last_epoch", epoch_);
  fields("_step_count", step_count_);
  fields.constant("_is_initial", false);
  fields.constant("_get_lr_called_within_step", false);
  fields("_last_lr", last_lrs_);
}

void EpochRule::check_groups(size_t groups) const {
  require_value_a_group("base_lrs", base_lrs_, groups);
  require_value_a_group("_last_lr", last_lrs_, groups);
  require_count("last_epoch", epoch_);
  require_count("_step_count", step_count_);
}

}  // namespace accelerate
