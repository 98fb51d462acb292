#include "core/configured/warmup_rule.h"

#include <memory>
#include <vector>

#include "optim/schedule_rule.h"

namespace accelerate {
namespace {

class WarmupRule final : public EpochRule {
 public:
  explicit WarmupRule(config::WarmupSchedule schedule) : schedule_(std::move(schedule)) {}
  Schedule copy() const override { return std::make_shared<WarmupRule>(*this); }

 private:
  void prepare(GroupRates& rates) override {
    config::check_warmup_groups(schedule_, rates.groups.size());
    initial_.clear();
    for (const GroupRate& group : rates.groups) initial_.push_back(group.initial_lr);
  }
  double next_lr(const GroupRate& /*group*/, double /*base_lr*/, size_t index) const override {
    return config::warmup_rate(schedule_, epoch(), initial_, index);
  }

  config::WarmupSchedule schedule_;
  std::vector<double> initial_;
};

}  // namespace

Schedule warmup_schedule(const config::WarmupSchedule& schedule) {
  return std::make_shared<WarmupRule>(schedule);
}

}  // namespace accelerate
