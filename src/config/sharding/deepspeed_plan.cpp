#include "config/sharding/deepspeed_plan.h"

#include <array>
#include <string_view>

#include "accelerate/errors.h"
#include "config/sharding/deepspeed_keys.h"
#include "config/sharding/deepspeed_section.h"

namespace accelerate::config {
namespace {

constexpr std::array<std::string_view, 3> kPlanDtypes = {"fp32", "fp16", "bf16"};

std::optional<PlanDtype> dtype_of(const DeepspeedSection& section, const char* key) {
  if (!section.has(key)) return std::nullopt;
  return static_cast<PlanDtype>(section.choice(key, kPlanDtypes, 0));
}

LossScalePlan loss_scale_plan(const DeepspeedSection& fp16) {
  LossScalePlan plan;
  plan.fixed = fp16.number("loss_scale", plan.fixed);
  plan.initial_power = fp16.integer("initial_scale_power", plan.initial_power, 0, 64);
  plan.window = fp16.integer("loss_scale_window", plan.window, 1);
  plan.hysteresis = fp16.integer("hysteresis", plan.hysteresis, 1);
  plan.counts_in_a_row = fp16.flag("consecutive_hysteresis", plan.counts_in_a_row);
  plan.smallest = fp16.number("min_loss_scale", plan.smallest);
  if (plan.smallest <= 0) fp16.refuse("min_loss_scale", "a number above 0");
  return plan;
}

// The product, as far as it can be counted.
std::optional<int64_t> product(int64_t a, int64_t b, int64_t c) {
  int64_t result = 0;
  if (__builtin_mul_overflow(a, b, &result) || __builtin_mul_overflow(result, c, &result)) {
    return std::nullopt;
  }
  return result;
}

struct GivenBatch {
  std::optional<int64_t> total{};
  std::optional<int64_t> micro{};
  std::optional<int64_t> accumulation{};
};

// DeepSpeed's rules: what is left out follows from the others, where one alone is given from an
// accumulation of 1.
BatchPlan completed(const GivenBatch& given, int64_t ranks, const DeepspeedSection& top) {
  if (given.micro) {
    const int64_t steps = given.accumulation ? *given.accumulation
                          : given.total      ? *given.total / *given.micro / ranks
                                             : 1;
    const auto total = product(*given.micro, steps, ranks);
    if (!total) top.refuse("train_micro_batch_size_per_gpu", "a number of rows that fits");
    return {given.total.value_or(*total), *given.micro, steps};
  }
  if (!given.total) {
    throw ConfigError(
        {.what = "neither train_batch_size nor train_micro_batch_size_per_gpu is given",
         .where = top.place_of("train_batch_size"),
         .hint = "write \"train_micro_batch_size_per_gpu\": \"auto\", or a number"});
  }
  const int64_t steps = given.accumulation.value_or(1);
  return {*given.total, *given.total / ranks / steps, steps};
}

}  // namespace

PrecisionPlan precision_plan(const DeepspeedDocument& document) {
  const DeepspeedSection top(document, "");
  const DeepspeedSection fp16(document, "fp16");
  const DeepspeedSection bf16(document, bf16_section(document));
  PrecisionPlan plan;
  const bool is_fp16 = fp16.flag("enabled", false);
  const bool is_bf16 = bf16.flag("enabled", false);
  if (is_fp16 && is_bf16) {
    refuse_contradiction("fp16 and bf16 are both enabled", fp16.place_of("enabled"),
                         bf16.place_of("enabled"), "enable one of them");
  }
  if (is_fp16) plan.dtype = PlanDtype::kFloat16;
  if (is_bf16) plan.dtype = PlanDtype::kBfloat16;
  plan.loss_scale = loss_scale_plan(fp16);
  plan.reduce_dtype = dtype_of(top, "communication_data_type");
  const DeepspeedSection types(document, "data_types");
  plan.accumulate_dtype = dtype_of(types, "grad_accum_dtype");
  if (dtype_of(types, "param_dtype").value_or(plan.dtype) != plan.dtype) {
    refuse_contradiction("data_types.param_dtype is " + types.text("param_dtype", "") +
                             ", but the precision is " +
                             std::string(kPlanDtypes[static_cast<size_t>(plan.dtype)]),
                         types.place_of("param_dtype"), (is_fp16 ? fp16 : bf16).place_of("enabled"),
                         "leave param_dtype out");
  }
  return plan;
}

BatchPlan batch_plan(const DeepspeedDocument& document, int ranks) {
  const DeepspeedSection top(document, "");
  GivenBatch given;
  given.total = top.integer_if_given("train_batch_size", 1);
  given.micro = top.integer_if_given("train_micro_batch_size_per_gpu", 1);
  if (!document.assumes_accumulation) {
    given.accumulation = top.integer_if_given("gradient_accumulation_steps", 1);
  }
  const BatchPlan plan = completed(given, ranks, top);
  if (product(plan.micro, plan.accumulation_steps, ranks) == plan.total) return plan;
  const std::string steps_place = given.accumulation
                                      ? top.place_of("gradient_accumulation_steps")
                                      : top.place_of("train_micro_batch_size_per_gpu");
  refuse_contradiction(
      "train_batch_size is " + std::to_string(plan.total) +
          ", which is not train_micro_batch_size_per_gpu x gradient_accumulation_steps x ranks = " +
          std::to_string(plan.micro) + " x " + std::to_string(plan.accumulation_steps) + " x " +
          std::to_string(ranks),
      top.place_of("train_batch_size"),
      given.micro ? top.place_of("train_micro_batch_size_per_gpu") : steps_place,
      "leave train_batch_size out: it follows from the others");
}

DeepspeedPlan deepspeed_plan(const DeepspeedDocument& document, int ranks) {
  DeepspeedPlan plan;
  plan.zero = zero_plan(document);
  plan.batch = batch_plan(document, ranks);
  plan.max_norm = DeepspeedSection(document, "").number("gradient_clipping", 0);
  plan.precision = precision_plan(document);
  plan.optimizer = optimizer_plan(document);
  plan.scheduler = scheduler_plan(document);
  plan.without_effect = keys_without_effect(document);
  if (plan.zero.shard_size && ranks % *plan.zero.shard_size != 0) {
    throw ConfigError({.what = std::to_string(ranks) + " ranks cannot be divided into groups of " +
                               std::to_string(*plan.zero.shard_size),
                       .where = document.place_of("zero_optimization.mics_shard_size"),
                       .hint = "a number that divides the ranks, or leave it out"});
  }
  return plan;
}

}  // namespace accelerate::config
