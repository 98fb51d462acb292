#include "core/configured/configured_objects.h"

#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/optimizer.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>

#include "accelerate/errors.h"
#include "accelerate/prepared_optimizer.h"
#include "config/sharding/deepspeed_plan.h"
#include "core/configured/group_overrides.h"
#include "core/configured/warmup_rule.h"

namespace accelerate {

struct ConfiguredOptimizer::Impl {
  std::vector<ParameterGroup> groups{};
  ConfiguredOptimizerOptions options{};
  torch::optim::Optimizer* otherwise = nullptr;
  std::shared_ptr<torch::optim::Optimizer> chosen{};  // once somebody asked
};

ConfiguredOptimizer::ConfiguredOptimizer(std::vector<at::Tensor> parameters,
                                         const ConfiguredOptimizerOptions& options)
    : impl_(std::make_shared<Impl>()) {
  impl_->groups.push_back({.parameters = std::move(parameters)});
  impl_->options = options;
}

ConfiguredOptimizer::ConfiguredOptimizer(torch::optim::Optimizer& otherwise)
    : impl_(std::make_shared<Impl>()) {
  const torch::optim::Optimizer& own = detail::own_optimizer(otherwise);
  impl_->groups = groups_of(own);
  impl_->options = {.lr = own.defaults().get_lr(),
                    .weight_decay = weight_decay_of(own.defaults()).value_or(0)};
  impl_->otherwise = &otherwise;
}

struct ConfiguredScheduler::Impl {
  std::optional<ConfiguredOptimizer> configured{};
  torch::optim::Optimizer* optimizer = nullptr;  // where it is not configured
  ConfiguredSchedulerOptions options{};
};

ConfiguredScheduler::ConfiguredScheduler(const ConfiguredOptimizer& optimizer,
                                         ConfiguredSchedulerOptions options)
    : impl_(std::make_shared<Impl>()) {
  impl_->configured = optimizer;
  impl_->options = std::move(options);
}

ConfiguredScheduler::ConfiguredScheduler(torch::optim::Optimizer& optimizer,
                                         ConfiguredSchedulerOptions options)
    : impl_(std::make_shared<Impl>()) {
  impl_->optimizer = &optimizer;
  impl_->options = std::move(options);
}

namespace {

template <class Options>
std::vector<torch::optim::OptimizerParamGroup> groups_with(
    const std::vector<ParameterGroup>& groups, const Options& options) {
  std::vector<torch::optim::OptimizerParamGroup> made;
  for (const ParameterGroup& group : groups) {
    auto own = std::make_unique<Options>(options);
    if (group.lr) own->lr(*group.lr);
    if (group.weight_decay) own->weight_decay(*group.weight_decay);
    made.emplace_back(group.parameters, std::move(own));
  }
  return made;
}

template <class Optimizer, class Options>
std::shared_ptr<torch::optim::Optimizer> made_of(const std::vector<ParameterGroup>& groups,
                                                 const Options& options) {
  return std::make_shared<Optimizer>(groups_with(groups, options), options);
}

template <class Optimizer, class Options>
std::shared_ptr<torch::optim::Optimizer> made_adam(const std::vector<ParameterGroup>& groups,
                                                   const config::OptimizerPlan& plan) {
  return made_of<Optimizer>(groups, Options(plan.lr)
                                        .betas(std::make_tuple(plan.betas[0], plan.betas[1]))
                                        .eps(plan.eps)
                                        .weight_decay(plan.weight_decay)
                                        .amsgrad(plan.amsgrad));
}

std::shared_ptr<torch::optim::Optimizer> optimizer_by(const config::OptimizerPlan& plan,
                                                      const std::vector<ParameterGroup>& groups) {
  namespace optim = torch::optim;
  switch (plan.kind) {
    case config::PlanOptimizer::kAdam:
      return made_adam<optim::Adam, optim::AdamOptions>(groups, plan);
    case config::PlanOptimizer::kAdamW:
      return made_adam<optim::AdamW, optim::AdamWOptions>(groups, plan);
    case config::PlanOptimizer::kSgd:
      break;
  }
  return made_of<optim::SGD>(groups, optim::SGDOptions(plan.lr)
                                         .momentum(plan.momentum)
                                         .dampening(plan.dampening)
                                         .weight_decay(plan.weight_decay)
                                         .nesterov(plan.nesterov));
}

// Someone else keeps it alive.
std::shared_ptr<torch::optim::Optimizer> not_owned(torch::optim::Optimizer& optimizer) {
  return {std::shared_ptr<torch::optim::Optimizer>(), &optimizer};
}

[[noreturn]] void refuse_stand_in(const std::string& what,
                                  const config::DeepspeedDocument* document,
                                  const std::string& section) {
  throw UsageError(
      {.what = "a stand-in for " + what + " of the configuration, which has none",
       .where = document != nullptr ? document->name : "prepare",
       .hint = document != nullptr
                   ? "add the section \"" + section + "\", or give the stand-in one of torch"
                   : "accelerate launch --use_deepspeed --deepspeed_config_file ds.json, or give "
                     "the stand-in one of torch"});
}

}  // namespace

ConfiguredObjects::ConfiguredObjects(const config::DeepspeedDocument* document, int ranks,
                                     bool split_batches)
    : document_(document), ranks_(ranks), split_batches_(split_batches) {}

bool ConfiguredObjects::has_optimizer() const {
  return document_ != nullptr && document_->find("optimizer") != nullptr;
}

bool ConfiguredObjects::has_scheduler() const {
  return document_ != nullptr && document_->find("scheduler") != nullptr;
}

std::shared_ptr<torch::optim::Optimizer> ConfiguredObjects::optimizer(
    const ConfiguredOptimizer& stands) {
  ConfiguredOptimizer::Impl& own = *stands.impl_;
  if (own.chosen) return own.chosen;
  if (!has_optimizer()) {
    if (own.otherwise == nullptr) refuse_stand_in("the optimizer", document_, "optimizer");
    return own.chosen = not_owned(*own.otherwise);
  }
  config::DeepspeedDocument section = config::part_of(*document_, {"optimizer"});
  config::fill_auto(section,
                    config::auto_values(section, {.ranks = ranks_,
                                                  .lr = own.options.lr,
                                                  .weight_decay = own.options.weight_decay}));
  own.chosen = optimizer_by(config::optimizer_plan(section).value(), own.groups);
  made_.push_back(own.chosen);
  return own.chosen;
}

Scheduler ConfiguredObjects::make_scheduler(torch::optim::Optimizer& optimizer,
                                            const ConfiguredSchedulerOptions& options) {
  torch::optim::Optimizer& moved = detail::own_optimizer(optimizer);
  config::DeepspeedDocument section = config::part_of(*document_, {"scheduler"});
  config::fill_auto(section,
                    config::auto_values(section, {.ranks = ranks_,
                                                  .split_batches = split_batches_,
                                                  .lr = moved.defaults().get_lr(),
                                                  .warmup_steps = options.warmup_steps,
                                                  .training_steps = options.training_steps}));
  const config::WarmupSchedule plan = config::scheduler_plan(section).value();
  config::check_warmup_groups(plan, moved.param_groups().size());
  return Scheduler(moved, warmup_schedule(plan));
}

ConfiguredObjects::Chosen ConfiguredObjects::scheduler(const ConfiguredScheduler& stands) {
  const ConfiguredScheduler::Impl& own = *stands.impl_;
  torch::optim::Optimizer& moved = own.configured ? *optimizer(*own.configured) : *own.optimizer;
  if (has_scheduler()) {
    return {.scheduler = make_scheduler(moved, own.options), .is_configured = true};
  }
  if (!own.options.otherwise) refuse_stand_in("the schedule", document_, "scheduler");
  return {.scheduler = own.options.otherwise(moved)};
}

Scheduler ConfiguredObjects::scheduler_of(torch::optim::Optimizer& optimizer) {
  return make_scheduler(optimizer, {});
}

void ConfiguredObjects::refuse_own(const torch::optim::Optimizer& optimizer) const {
  if (!has_optimizer()) return;
  const bool is_made =
      std::ranges::any_of(made_, [&](const auto& weak) { return weak.lock().get() == &optimizer; });
  if (is_made) return;
  config::refuse_contradiction(
      "the configuration has an optimizer, and the program brings its own", "prepare",
      document_->place_of("optimizer"),
      "take that section out, or prepare accelerate::ConfiguredOptimizer(yours) in place of yours");
}

void ConfiguredObjects::refuse_own_scheduler() const {
  if (!has_scheduler()) return;
  config::refuse_contradiction(
      "the configuration has a schedule, and the program brings its own", "prepare",
      document_->place_of("scheduler"),
      "take that section out, or prepare an accelerate::ConfiguredScheduler in place of yours");
}

}  // namespace accelerate
