#include "optim/torch_schedule.h"

#include <c10/util/Exception.h>
#include <c10/util/Type.h>
#include <torch/optim/optimizer.h>
#include <torch/optim/schedulers/lr_scheduler.h>
#include <torch/optim/schedulers/step_lr.h>

#include <limits>
#include <string>
#include <typeinfo>
#include <utility>

#include "accelerate/errors.h"
#include "accelerate/log.h"
#include "optim/schedule_rule.h"

namespace accelerate {
namespace {

// Subclasses alone may name these members; a pointer to one then works on any scheduler.
struct SchedulerMembers : torch::optim::LRScheduler {
  static unsigned& step_count(torch::optim::LRScheduler& scheduler) {
    return scheduler.*(&SchedulerMembers::step_count_);
  }
  static std::vector<double> rates(const torch::optim::LRScheduler& scheduler) {
    return (scheduler.*(&SchedulerMembers::get_current_lrs))();
  }
};

// The scheduler holds its course itself and writes the rates to its optimizer; what is read from a
// saved state waits in a copy of the rule until take_effect().
class TorchRule final : public ScheduleRule {
 public:
  explicit TorchRule(detail::TorchScheduler adapted)
      : adapted_(std::move(adapted)), own_steps_(std::make_shared<int64_t>(step_count())) {}
  Schedule copy() const override { return std::make_shared<TorchRule>(*this); }

  // Torch's constructor has not touched the rates, and there is no way back to its beginning.
  void start(GroupRates& /*rates*/) override {}
  void restart(GroupRates& /*rates*/) override {}
  void undo_start() override {}
  void start_again(GroupRates& /*rates*/) override {}

  void step(GroupRates& rates) override {
    require_own_steps("scheduler.step()");
    scheduler().step();
    *own_steps_ = step_count();
    const std::vector<double> now = last_lr();
    for (size_t i = 0; i < now.size(); ++i) rates.groups.at(i).lr = now[i];
  }

  int64_t last_epoch() const override { return step_count(); }
  int64_t step_count() const override { return SchedulerMembers::step_count(scheduler()); }
  // The count is the place on the course here: calls that moved nothing must not change it.
  void add_to_step_count(int64_t /*steps*/) override {}
  std::vector<double> last_lr() const override { return SchedulerMembers::rates(scheduler()); }

  void visit(StateFields& fields) override {
    if (!fields.reads()) {
      require_own_steps("state_dict");
      loaded_steps_ = step_count();
      loaded_rates_ = last_lr();
      warn_of_unsaved_state();
    }
    fields("step_count", loaded_steps_);
    fields("_last_lr", loaded_rates_);
    if (!adapted_.own_state.state_dict) return;
    if (fields.reads()) {
      loaded_state_ = fields.saved(kOwnState).as_dict();
    } else {
      fields.to()->set(kOwnState, adapted_.own_state.state_dict());
    }
  }

  void take_effect() override {
    if (adapted_.own_state.load_state_dict) adapted_.own_state.load_state_dict(loaded_state_);
    SchedulerMembers::step_count(scheduler()) = static_cast<unsigned>(loaded_steps_);
    *own_steps_ = loaded_steps_;
  }

 private:
  static constexpr const char* kOwnState = "own_state";

  void check_groups(size_t groups) const override {
    require_value_a_group("_last_lr", loaded_rates_, groups);
    if (loaded_steps_ >= 0 && loaded_steps_ <= std::numeric_limits<unsigned>::max()) return;
    refuse_state("'step_count' of the saved schedule is " + std::to_string(loaded_steps_),
                 "load a state that a schedule has saved");
  }

  torch::optim::LRScheduler& scheduler() const { return *adapted_.scheduler; }

  // A step() past the prepared scheduler ignores windows, skipped updates and the pace.
  void require_own_steps(const char* where) const {
    if (step_count() == *own_steps_) return;
    throw UsageError({.what = "step() was called on the scheduler given to prepare()",
                      .where = where,
                      .hint =
                          "call step() of what prepare() returned; the rates have moved, so load "
                          "a checkpoint or begin again"});
  }

  void warn_of_unsaved_state() {
    if (adapted_.own_state.state_dict || std::exchange(*warned_, true)) return;
    const torch::optim::LRScheduler& object = scheduler();
    const std::type_info& type = typeid(object);
    if (type == typeid(torch::optim::StepLR)) return;
    log(LogLevel::kWarning, "only the step count and the learning rates of the scheduler " +
                                c10::demangle(type.name()) +
                                " are saved; if it has more state, "
                                "give the class state_dict() and load_state_dict()");
  }

  detail::TorchScheduler adapted_;
  std::shared_ptr<int64_t>
      own_steps_;  // that were made here; shared by copies, as the scheduler is
  std::shared_ptr<bool> warned_ = std::make_shared<bool>(false);
  int64_t loaded_steps_ = 0;
  std::vector<double> loaded_rates_;
  StateDict loaded_state_;
};

}  // namespace

bool reads_rates_of(const std::function<std::vector<double>()>& rates,
                    const PreparedOptimizer& prepared) {
  // The scheduler may read the optimizer that `prepared` converts to: their groups agree when
  // asked.
  prepared.agree_groups();
  auto& groups = prepared.optimizer().param_groups();
  const std::vector<double> before = rates();
  if (groups.empty() || before.size() != groups.size()) return false;
  auto& options = groups.front().options();
  try {
    const double own = options.get_lr();
    const double probe = before.front() == 1.0 ? 2.0 : 1.0;
    options.set_lr(probe);
    prepared.agree_groups();
    const bool seen = rates().front() == probe;
    options.set_lr(own);
    prepared.agree_groups();
    return seen;
  } catch (const c10::Error&) {
    return false;  // its options have no learning rate
  }
}

Scheduler adapt_torch_scheduler(detail::TorchScheduler adapted, ScheduledOptimizer find) {
  const auto rates = [scheduler = adapted.scheduler] {
    return SchedulerMembers::rates(*scheduler);
  };
  return Scheduler([find = std::move(find), rates] { return find(rates); },
                   std::make_shared<TorchRule>(std::move(adapted)));
}

}  // namespace accelerate
