// Schedules made of others: sequential_lr and chained_scheduler.
#include <algorithm>

#include "accelerate/errors.h"
#include "optim/schedule_rule.h"

namespace accelerate {
namespace {

class CombinedRule : public ScheduleRule {
 public:
  explicit CombinedRule(std::vector<Schedule> parts) : parts_(std::move(parts)) {
    if (parts_.empty()) refuse_schedule("no schedules to combine");
    for (const Schedule& part : parts_) {
      if (part == nullptr) refuse_schedule("an empty schedule among those to combine");
      if (part->needs_metric()) {
        refuse_schedule("a schedule that needs a metric cannot be combined with others");
      }
      part->take();
    }
  }

  // torch does not count the steps of combinations.
  int64_t step_count() const override { return 0; }
  void add_to_step_count(int64_t /*steps*/) override {}
  std::vector<double> last_lr() const override { return last_lrs_; }
  void undo_start() override {
    for (const Schedule& part : parts_) part->undo_start();
  }

 protected:
  void visit_parts(StateFields& fields) {
    if (fields.reads()) {
      const StateValue::List& saved = fields.saved("_schedulers").as_list();
      if (saved.size() != parts_.size()) {
        throw CheckpointError({.what = "the saved schedule is made of " +
                                       std::to_string(saved.size()) + " schedules, this one of " +
                                       std::to_string(parts_.size()),
                               .hint = "combine the same schedules"});
      }
      for (size_t i = 0; i < parts_.size(); ++i) {
        StateFields part = StateFields::reading(saved[i].as_dict());
        parts_[i]->visit(part);
        part.require_no_others();
      }
      return;
    }
    StateValue::List list;
    for (const Schedule& schedule : parts_) {
      StateDict state;
      StateFields part = StateFields::writing(state);
      schedule->visit(part);
      list.emplace_back(std::move(state));
    }
    fields.constant("_schedulers", std::move(list));
  }
  void check_groups(size_t groups) const override {
    require_value_a_group("_last_lr", last_lrs_, groups);
    for (const Schedule& part : parts_) part->check(groups);
  }
  // After the members were copied: parts of its own.
  void copy_parts() {
    for (Schedule& part : parts_) part = part->copy();
  }
  void start_parts(GroupRates& rates) {
    for (const Schedule& part : parts_) part->start(rates);
  }
  const std::vector<Schedule>& parts() const { return parts_; }
  std::vector<double>& last_lrs() { return last_lrs_; }

 private:
  std::vector<Schedule> parts_;
  std::vector<double> last_lrs_;
};

class SequentialRule final : public CombinedRule {
 public:
  SequentialRule(std::vector<Schedule> parts, std::vector<int64_t> milestones)
      : CombinedRule(std::move(parts)), milestones_(std::move(milestones)) {
    check_options();
  }
  Schedule copy() const override {
    auto other = std::make_shared<SequentialRule>(*this);
    other->copy_parts();
    return other;
  }

  // All parts take the initial rates; then only the first one is left started.
  void start(GroupRates& rates) override {
    start_parts(rates);
    for (GroupRate& group : rates.groups) group.lr = group.initial_lr;
    undo_start();
    start_again(rates);
  }
  void start_again(GroupRates& rates) override {
    parts()[0]->start_again(rates);
    epoch_ = 0;
    last_lrs() = rates.lrs();
  }
  void restart(GroupRates& rates) override {
    epoch_ = 0;
    parts()[0]->restart(rates);
    last_lrs() = rates.lrs();
  }

  void step(GroupRates& rates) override {
    const int64_t next = epoch_ + 1;
    const auto passed = std::ranges::upper_bound(milestones_, next) - milestones_.begin();
    const Schedule& part = parts()[static_cast<size_t>(passed)];
    if (passed > 0 && milestones_[static_cast<size_t>(passed - 1)] == next) {
      part->restart(rates);
    } else {
      part->step(rates);
    }
    epoch_ = next;
    last_lrs() = rates.lrs();
  }

  int64_t last_epoch() const override { return epoch_; }
  void visit(StateFields& fields) override {
    fields("_milestones", milestones_);
    fields("last_epoch", epoch_);
    fields("_last_lr", last_lrs());
    visit_parts(fields);
  }

 private:
  void check_options() const override {
    if (milestones_.size() + 1 != parts().size()) {
      refuse_schedule(std::to_string(milestones_.size()) + " milestones between " +
                          std::to_string(parts().size()) + " schedules",
                      "give one milestone fewer than schedules");
    }
    if (!std::ranges::is_sorted(milestones_)) refuse_schedule("the milestones are not in order");
  }
  void check_groups(size_t groups) const override {
    CombinedRule::check_groups(groups);
    require_count("last_epoch", epoch_);
  }

  std::vector<int64_t> milestones_;
  int64_t epoch_ = 0;
};

class ChainedRule final : public CombinedRule {
 public:
  using CombinedRule::CombinedRule;
  Schedule copy() const override {
    auto other = std::make_shared<ChainedRule>(*this);
    other->copy_parts();
    return other;
  }

  void start(GroupRates& rates) override {
    start_parts(rates);
    last_lrs() = rates.lrs();
  }
  void start_again(GroupRates& rates) override {
    for (const Schedule& part : parts()) part->start_again(rates);
    last_lrs() = rates.lrs();
  }
  // Each part would set its own first rates: from the initial ones, one after the other.
  void restart(GroupRates& rates) override {
    for (GroupRate& group : rates.groups) group.lr = group.initial_lr;
    for (const Schedule& part : parts()) part->start(rates);
    last_lrs() = rates.lrs();
  }
  void step(GroupRates& rates) override {
    for (const Schedule& part : parts()) part->step(rates);
    last_lrs() = rates.lrs();
  }

  int64_t last_epoch() const override { return parts()[0]->last_epoch(); }
  void visit(StateFields& fields) override {
    fields("_last_lr", last_lrs());
    visit_parts(fields);
  }
};

}  // namespace

Schedule sequential_lr(std::vector<Schedule> schedules, std::vector<int64_t> milestones) {
  return std::make_shared<SequentialRule>(std::move(schedules), std::move(milestones));
}
Schedule chained_scheduler(std::vector<Schedule> schedules) {
  return std::make_shared<ChainedRule>(std::move(schedules));
}

}  // namespace accelerate
