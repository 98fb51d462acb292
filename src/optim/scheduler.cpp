#include <torch/optim/optimizer.h>

#include <utility>

#include "accelerate/errors.h"
#include "accelerate/prepared_optimizer.h"
#include "accelerate/schedulers.h"
#include "optim/momentum_option.h"
#include "optim/schedule_rule.h"

namespace accelerate {
namespace {

void require_groups(size_t now, size_t at_start) {
  if (now == at_start) return;
  refuse_schedule("the optimizer has " + std::to_string(now) +
                      " parameter groups, the schedule was made for " + std::to_string(at_start),
                  "add all groups before making the scheduler");
}

std::vector<double> saved_rates(const StateDict& state) {
  return state.at("_last_lr").as_numbers();
}

// The rule with another state.
Schedule loaded_copy(const ScheduleRule& rule, const StateDict& state, size_t groups) {
  Schedule loaded = rule.copy();
  StateFields fields = StateFields::reading(state);
  try {
    loaded->visit(fields);
    fields.require_no_others();
    loaded->check(groups);
  } catch (const UsageError& error) {
    refuse_state("the saved schedule is invalid: " + error.message(),
                 "load a state that a schedule of this kind has saved");
  }
  return loaded;
}

}  // namespace

struct Scheduler::Impl {
  Impl(torch::optim::Optimizer& scheduled, Schedule schedule)
      : find_optimizer([&scheduled] { return &scheduled; }), rule(std::move(schedule)) {
    if (rule == nullptr) refuse_schedule("an empty schedule");
    rule->take();
    read_options();
    for (GroupRate& group : rates.groups) group.initial_lr = group.lr;
    rule->start(rates);
    write_options();
  }
  Impl(std::function<torch::optim::Optimizer*()> find, Schedule adapted)
      : find_optimizer(std::move(find)), rule(std::move(adapted)) {}

  torch::optim::Optimizer& optimizer() const {
    if (auto* found = find_optimizer()) return *found;
    throw UsageError({.what = "a scheduler changes an optimizer that is not prepared",
                      .where = "learning-rate schedule",
                      .hint = "give the optimizer to prepare() too, and keep what comes back"});
  }

  // What the groups have now: the user may have changed it since the last step.
  void read_options() {
    const auto& groups = std::as_const(optimizer()).param_groups();
    if (rates.groups.empty()) rates.groups.resize(groups.size());
    require_groups(groups.size(), rates.groups.size());
    for (size_t i = 0; i < groups.size(); ++i) {
      const auto& options = groups[i].options();
      rates.groups[i].lr = options.get_lr();
      const MomentumOption* momentum = find_momentum_option(options);
      if (momentum == nullptr) continue;
      rates.groups[i].momentum = momentum->read(options);
      rates.momentum_is_beta1 = momentum->is_beta1;
    }
  }

  void write_options() {
    auto& groups = optimizer().param_groups();
    for (size_t i = 0; i < groups.size(); ++i) {
      auto& options = groups[i].options();
      options.set_lr(rates.groups[i].lr);
      const MomentumOption* momentum = find_momentum_option(options);
      if (momentum != nullptr) momentum->write(options, *rates.groups[i].momentum);
    }
  }

  // The rule with another state, which fits the optimizer.
  Schedule loaded(const StateDict& state) const {
    const size_t groups = std::as_const(optimizer()).param_groups().size();
    if (!rates.groups.empty()) require_groups(groups, rates.groups.size());
    if (const size_t saved = saved_rates(state).size(); saved != groups) {
      refuse_state("the saved schedule is of " + std::to_string(saved) +
                       " parameter groups, the optimizer has " + std::to_string(groups),
                   "make the optimizer with the groups that it was saved with");
    }
    return loaded_copy(*rule, state, groups);
  }

  // `change` may throw: then nothing has reached the optimizer.
  template <class Change>
  void move(Change change) {
    read_options();
    change();
    write_options();
  }

  std::function<torch::optim::Optimizer*()> find_optimizer;
  Schedule rule;
  GroupRates rates;
};

Scheduler::Scheduler(torch::optim::Optimizer& optimizer, Schedule schedule)
    : impl_(std::make_shared<Impl>(detail::own_optimizer(optimizer), std::move(schedule))) {
  (void)detail::own_optimizer(optimizer);  // learns the rates that the schedule begins with
}

Scheduler::Scheduler(std::function<torch::optim::Optimizer*()> find_optimizer, Schedule adapted)
    : impl_(std::make_shared<Impl>(std::move(find_optimizer), std::move(adapted))),
      adapted_(true) {}

void Scheduler::step() {
  impl_->move([&] { impl_->rule->step(impl_->rates); });
}

void Scheduler::step(double metric_or_epoch) {
  impl_->move([&] { impl_->rule->step_to(impl_->rates, metric_or_epoch); });
}

bool Scheduler::needs_metric() const { return impl_->rule->needs_metric(); }
std::vector<double> Scheduler::last_lr() const { return impl_->rule->last_lr(); }
int64_t Scheduler::last_epoch() const { return impl_->rule->last_epoch(); }
int64_t Scheduler::step_count() const { return impl_->rule->step_count(); }
void Scheduler::add_to_step_count(int64_t steps) { impl_->rule->add_to_step_count(steps); }
std::optional<int64_t> Scheduler::total_steps() const { return impl_->rule->total_steps(); }

StateDict Scheduler::state_dict() const {
  StateDict state;
  StateFields fields = StateFields::writing(state);
  impl_->rule->visit(fields);
  return state;
}

void Scheduler::check_state_dict(const StateDict& state) const {
  static_cast<void>(impl_->loaded(state));
}

void Scheduler::load_state_dict(const StateDict& state) {
  Schedule loaded = impl_->loaded(state);
  const std::vector<double> saved = saved_rates(state);
  loaded->take_effect();
  impl_->move([&] {
    for (size_t i = 0; i < saved.size(); ++i) impl_->rates.groups[i].lr = saved[i];
  });
  impl_->rule = std::move(loaded);
}

torch::optim::Optimizer& Scheduler::optimizer() const { return impl_->optimizer(); }

torch::optim::Optimizer* Scheduler::optimizer_if_known() const { return impl_->find_optimizer(); }

std::function<std::optional<Scheduler>()> Scheduler::weak_handle() const {
  return [weak = std::weak_ptr(impl_), adapted = adapted_]() -> std::optional<Scheduler> {
    auto impl = weak.lock();
    if (!impl) return std::nullopt;
    return Scheduler(std::move(impl), adapted);
  };
}

}  // namespace accelerate
