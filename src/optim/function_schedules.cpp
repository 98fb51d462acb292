// Schedules that the user writes: lambda_lr and multiplicative_lr.
#include "optim/function_schedules.h"

#include <utility>

namespace accelerate {
namespace {

// One function for each group, from one for all or one for each.
class FunctionRule : public EpochRule {
 public:
  FunctionRule(std::vector<RateFunction> factors, StateValue saved_as)
      : factors_(std::move(factors)), saved_as_(std::move(saved_as)) {
    for (const RateFunction& factor : factors_) {
      if (!factor) refuse_schedule("an empty function instead of a factor for the rate");
    }
  }

  void visit(StateFields& fields) override {
    EpochRule::visit(fields);
    fields.constant("lr_lambdas", StateValue::List(base_lrs().size(), saved_as_));
  }

 protected:
  void prepare(GroupRates& rates) override {
    if (factors_.size() == 1) factors_.resize(rates.groups.size(), factors_[0]);
    if (factors_.size() == rates.groups.size()) return;
    refuse_schedule(std::to_string(factors_.size()) + " functions for " +
                        std::to_string(rates.groups.size()) + " parameter groups",
                    "give one function for all groups, or one for each");
  }
  double factor(size_t group) const { return factors_[group](epoch()); }

 private:
  std::vector<RateFunction> factors_;
  StateValue saved_as_;
};

class LambdaRule final : public FunctionRule {
 public:
  using FunctionRule::FunctionRule;
  Schedule copy() const override { return std::make_shared<LambdaRule>(*this); }

 private:
  double next_lr(const GroupRate& /*group*/, double base_lr, size_t index) const override {
    return base_lr * factor(index);
  }
};

class MultiplicativeRule final : public FunctionRule {
 public:
  using FunctionRule::FunctionRule;
  Schedule copy() const override { return std::make_shared<MultiplicativeRule>(*this); }

 private:
  double next_lr(const GroupRate& group, double /*base_lr*/, size_t index) const override {
    return is_initial() ? group.lr : group.lr * factor(index);
  }
};

std::vector<RateFunction> one(RateFunction factor) {
  std::vector<RateFunction> all;
  all.push_back(std::move(factor));
  return all;
}

}  // namespace

Schedule lambda_lr(RateFunction factor) { return lambda_lr(one(std::move(factor))); }
Schedule lambda_lr(std::vector<RateFunction> factors) {
  return std::make_shared<LambdaRule>(std::move(factors), StateValue());
}
Schedule multiplicative_lr(RateFunction factor) {
  return multiplicative_lr(one(std::move(factor)));
}
Schedule multiplicative_lr(std::vector<RateFunction> factors) {
  return std::make_shared<MultiplicativeRule>(std::move(factors), StateValue());
}

Schedule named_lambda_lr(RateFunction factor) {
  return std::make_shared<LambdaRule>(one(std::move(factor)), StateValue(StateDict()));
}

}  // namespace accelerate
