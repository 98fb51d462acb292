// The sections optimizer and scheduler.
#include <array>
#include <string_view>

#include "accelerate/errors.h"
#include "base/word_list.h"
#include "config/sharding/deepspeed_plan.h"
#include "config/sharding/deepspeed_section.h"

namespace accelerate::config {
namespace {

constexpr std::array<std::string_view, 3> kPlanOptimizers = {"Adam", "AdamW", "SGD"};
constexpr std::array<std::string_view, 3> kPlanSchedules = {"WarmupLR", "WarmupDecayLR",
                                                            "WarmupCosineLR"};
constexpr std::array<std::string_view, 2> kWarmupCurves = {"log", "linear"};

constexpr double kTorchAdamwDecay = 0.01;
constexpr double kHighestRateIfNobodySays = 0.001;  // of WarmupDecayLR
constexpr double kAnyNumber = -std::numeric_limits<double>::infinity();

// The position of the section's type among `types`.
size_t type_of(const DeepspeedSection& section, std::span<const std::string_view> types) {
  if (section.has("type")) return section.choice("type", types, 0);
  throw ConfigError({.what = section.path_of("type") + " is missing",
                     .where = section.place_of("type"),
                     .hint = listed(types, "or")});
}

// Each throws ConfigError where a parameter of other types stands.
void refuse_foreign(const DeepspeedSection& section, const DeepspeedSection& params,
                    std::string_view type, std::initializer_list<const char*> foreign) {
  for (const char* key : foreign) {
    if (!params.has(key)) continue;
    refuse_contradiction(std::string(type) + " has no parameter " + key, params.place_of(key),
                         section.place_of("type"), std::string("leave ") + key + " out");
  }
}

std::array<double, 2> betas_of(const DeepspeedSection& params, std::array<double, 2> otherwise) {
  if (!params.has("betas")) return otherwise;
  const std::vector<double> betas = params.numbers("betas");
  if (betas.size() != 2 || betas[0] >= 1 || betas[1] >= 1) {
    params.refuse("betas", "a list of two numbers from 0 to 1");
  }
  return {betas[0], betas[1]};
}

void read_adam(const DeepspeedSection& section, const DeepspeedSection& params,
               OptimizerPlan& plan) {
  refuse_foreign(section, params, kPlanOptimizers[static_cast<size_t>(plan.kind)],
                 {"momentum", "dampening", "nesterov"});
  const bool decays_as_adamw = params.flag("adam_w_mode", true);
  if (plan.kind == PlanOptimizer::kAdamW && !decays_as_adamw) {
    refuse_contradiction("the optimizer is AdamW, but adam_w_mode is false",
                         section.place_of("type"), params.place_of("adam_w_mode"),
                         "\"type\": \"Adam\"");
  }
  // DeepSpeed's Adam is AdamW unless it is told otherwise.
  if (decays_as_adamw) plan.kind = PlanOptimizer::kAdamW;
  const bool is_torch = params.flag("torch_adam", false);
  const bool has_torch_decay = is_torch && plan.kind == PlanOptimizer::kAdamW;
  plan.weight_decay = params.number("weight_decay", has_torch_decay ? kTorchAdamwDecay : 0.0);
  plan.betas = betas_of(params, plan.betas);
  plan.eps = params.number("eps", plan.eps);
  plan.amsgrad = params.flag("amsgrad", false);
}

void read_sgd(const DeepspeedSection& section, const DeepspeedSection& params,
              OptimizerPlan& plan) {
  refuse_foreign(section, params, "SGD", {"betas", "eps", "amsgrad", "adam_w_mode", "torch_adam"});
  plan.weight_decay = params.number("weight_decay", 0);
  plan.momentum = params.number("momentum", 0);
  plan.dampening = params.number("dampening", 0, kAnyNumber);
  plan.nesterov = params.flag("nesterov", false);
  if (plan.nesterov && (plan.momentum <= 0 || plan.dampening != 0)) {
    refuse_contradiction("nesterov needs a momentum and no dampening", params.place_of("nesterov"),
                         params.place_of(plan.momentum <= 0 ? "momentum" : "dampening"),
                         "\"momentum\": 0.9");
  }
}

int64_t total_steps_of(const DeepspeedSection& params) {
  if (params.has("total_num_steps")) return params.integer("total_num_steps", 0, 1);
  throw ConfigError({.what = params.path_of("total_num_steps") + " is missing",
                     .where = params.place_of("total_num_steps"),
                     .hint = "write \"auto\", or the number of updates"});
}

std::vector<double> rates_of(const DeepspeedSection& params, const char* key,
                             std::vector<double> otherwise) {
  return params.has(key) ? params.numbers(key) : std::move(otherwise);
}

}  // namespace

std::optional<OptimizerPlan> optimizer_plan(const DeepspeedDocument& document) {
  const DeepspeedSection section(document, "optimizer");
  if (!section.is_present()) return std::nullopt;
  const DeepspeedSection params(document, "optimizer.params");
  if (params.has("max_grad_norm")) {
    throw ConfigError({.what = "max_grad_norm is not a parameter of an optimizer",
                       .where = params.place_of("max_grad_norm"),
                       .hint = "\"gradient_clipping\" at the top of the configuration"});
  }
  OptimizerPlan plan;
  plan.kind = static_cast<PlanOptimizer>(type_of(section, kPlanOptimizers));
  plan.lr = params.number("lr", plan.lr);
  plan.maximize = params.flag("maximize", false);
  const auto read = plan.kind == PlanOptimizer::kSgd ? read_sgd : read_adam;
  read(section, params, plan);
  return plan;
}

std::optional<WarmupSchedule> scheduler_plan(const DeepspeedDocument& document) {
  const DeepspeedSection section(document, "scheduler");
  if (!section.is_present()) return std::nullopt;
  const DeepspeedSection params(document, "scheduler.params");
  WarmupSchedule plan;
  plan.kind = static_cast<WarmupKind>(type_of(section, kPlanSchedules));
  const std::string_view type = kPlanSchedules[static_cast<size_t>(plan.kind)];
  plan.warmup_steps = params.integer("warmup_num_steps", plan.warmup_steps, 1);
  plan.curve = static_cast<WarmupCurve>(params.choice("warmup_type", kWarmupCurves, 0));
  if (plan.kind == WarmupKind::kConstant) {
    refuse_foreign(section, params, type, {"total_num_steps"});
  } else {
    plan.total_steps = total_steps_of(params);
  }
  if (plan.kind == WarmupKind::kCosineDecay) {
    refuse_foreign(section, params, type, {"warmup_min_lr", "warmup_max_lr"});
    plan.warmup_min_ratio = params.number("warmup_min_ratio", plan.warmup_min_ratio);
    plan.cosine_min_ratio = params.number("cos_min_ratio", plan.cosine_min_ratio);
    return plan;
  }
  refuse_foreign(section, params, type, {"warmup_min_ratio", "cos_min_ratio"});
  plan.min_lr = rates_of(params, "warmup_min_lr", plan.min_lr);
  const bool has_rate = plan.kind == WarmupKind::kLinearDecay;
  plan.max_lr =
      rates_of(params, "warmup_max_lr",
               has_rate ? std::vector<double>{kHighestRateIfNobodySays} : std::vector<double>{});
  return plan;
}

}  // namespace accelerate::config
