// What a configuration of DeepSpeed asks for, and what is refused or has no effect.
#include "config/sharding/deepspeed_plan.h"

#include <gmock/gmock.h>

#include <fstream>
#include <set>
#include <sstream>

#include "accelerate/errors.h"
#include "config/sharding/deepspeed_keys.h"

namespace accelerate::config {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A configuration that is complete, with `more` in it.
json complete(json more = json::object()) {
  json config = {{"train_micro_batch_size_per_gpu", 2}, {"zero_optimization", {{"stage", 2}}}};
  config.merge_patch(more);
  return config;
}

DeepspeedPlan planned(const json& config, int ranks = 2) {
  return deepspeed_plan(parse_deepspeed(config.dump(), "ds.json"), ranks);
}

// "message | place"
std::string refused(const json& config, int ranks = 2) {
  try {
    planned(config, ranks);
  } catch (const ConfigError& error) {
    return error.message() + " | " + error.where();
  }
  return "taken";
}

TEST(DeepspeedPlan, WhatNobodyGivesIsAsInDeepspeed) {
  const DeepspeedPlan plan = planned(complete({{"zero_optimization", {{"stage", 3}}}}));
  ZeroPlan zero;
  zero.stage = 3;
  zero.overlaps_reduction = true;
  zero.optimizer_offload.buffer_count = 4;
  zero.parameter_offload = {
      .buffer_count = 5, .buffer_numbers = 100'000'000, .numbers_in_memory = 1'000'000'000};
  EXPECT_EQ(plan.zero, zero);
  EXPECT_EQ(plan.precision, PrecisionPlan());
  EXPECT_EQ(plan.max_norm, 0);
  EXPECT_FALSE(plan.optimizer || plan.scheduler);
  EXPECT_THAT(plan.without_effect, IsEmpty());
}

TEST(DeepspeedPlan, NumbersMayBeWrittenAsPowers) {
  const json config = complete({{"zero_optimization", {{"reduce_bucket_size", 5e8}}}});
  EXPECT_EQ(planned(config).zero.reduce_bucket, 500'000'000);
  EXPECT_EQ(refused(complete({{"zero_optimization", {{"reduce_bucket_size", 1.5}}}})),
            "zero_optimization.reduce_bucket_size cannot be 1.5: it must be a whole number not "
            "below 0 | ds.json: zero_optimization.reduce_bucket_size");
}

TEST(DeepspeedPlan, OlderNamesMeanTheSame) {
  const ZeroPlan plan = planned(complete({{"zero_optimization",
                                           {{"stage", 3},
                                            {"cpu_offload", true},
                                            {"cpu_offload_param", true},
                                            {"stage3_gather_fp16_weights_on_model_save", true}}}}))
                            .zero;
  EXPECT_EQ(plan.optimizer_offload.device, OffloadDevice::kCpu);
  EXPECT_EQ(plan.parameter_offload.device, OffloadDevice::kCpu);
  EXPECT_TRUE(plan.saves_16bit_model);
  EXPECT_EQ(refused(complete({{"zero_optimization",
                               {{"cpu_offload", true}, {"offload_optimizer", json::object()}}}})),
            "cpu_offload is the older name of offload_optimizer | ds.json: "
            "zero_optimization.cpu_offload and ds.json: zero_optimization.offload_optimizer");
}

TEST(DeepspeedPlan, OffloadNeedsAFittingStageAndAFolder) {
  const auto with_offload = [](int stage, const char* part, json offload) {
    return complete({{"zero_optimization", {{"stage", stage}, {part, std::move(offload)}}}});
  };
  EXPECT_EQ(refused(with_offload(2, "offload_param", {{"device", "cpu"}})),
            "offload_param is asked for, but stage is 2: only stage 3 offloads parameters | "
            "ds.json: zero_optimization.offload_param.device and ds.json: zero_optimization.stage");
  EXPECT_THAT(refused(with_offload(0, "offload_optimizer", {{"device", "cpu"}})),
              HasSubstr("only stages 1 to 3 offload"));
  EXPECT_THAT(refused(with_offload(3, "offload_optimizer", {{"device", "nvme"}})),
              HasSubstr("zero_optimization.offload_optimizer.device is nvme, but no folder is "
                        "named"));
  const auto plan =
      planned(with_offload(3, "offload_param", {{"device", "nvme"}, {"nvme_path", "/fast"}}));
  EXPECT_EQ(plan.zero.parameter_offload.nvme_path, "/fast");
}

BatchPlan batch(json sizes, int ranks) {
  return batch_plan(parse_deepspeed(sizes.dump(), "ds.json"), ranks);
}

TEST(DeepspeedPlan, TwoBatchSizesDecideTheThird) {
  const json total = {{"train_batch_size", 24}};
  const json micro = {{"train_micro_batch_size_per_gpu", 4}};
  const json steps = {{"gradient_accumulation_steps", 2}};
  const auto all_of = [](std::initializer_list<json> parts) {
    json result = json::object();
    for (const json& part : parts) result.update(part);
    return result;
  };
  const BatchPlan expected{24, 4, 2};
  EXPECT_EQ(batch(all_of({total, micro}), 3), expected);
  EXPECT_EQ(batch(all_of({total, steps}), 3), expected);
  EXPECT_EQ(batch(all_of({micro, steps}), 3), expected);
  EXPECT_EQ(batch(all_of({total, micro, steps}), 3), expected);
  EXPECT_EQ(batch(total, 3), (BatchPlan{24, 8, 1}));
  EXPECT_EQ(batch(micro, 3), (BatchPlan{12, 4, 1}));
}

TEST(DeepspeedPlan, BatchSizesThatDoNotFitAreRefusedWithBothPlaces) {
  EXPECT_EQ(refused({{"train_batch_size", 16},
                     {"train_micro_batch_size_per_gpu", 4},
                     {"gradient_accumulation_steps", 1}}),
            "train_batch_size is 16, which is not train_micro_batch_size_per_gpu x "
            "gradient_accumulation_steps x ranks = 4 x 1 x 2 | ds.json: train_batch_size and "
            "ds.json: train_micro_batch_size_per_gpu");
  EXPECT_THAT(refused({{"train_batch_size", 5}}), HasSubstr("= 2 x 1 x 2"));
  EXPECT_THAT(refused({{"train_batch_size", 4}, {"train_micro_batch_size_per_gpu", 8}}),
              HasSubstr("= 8 x 0 x 2"));
  EXPECT_THAT(refused(json::object()),
              HasSubstr("neither train_batch_size nor train_micro_batch_size_per_gpu is given"));
  EXPECT_THAT(refused({{"train_micro_batch_size_per_gpu", 0}}),
              HasSubstr("it must be a whole number not below 1"));
  const int64_t large = int64_t{1} << 60;
  EXPECT_THAT(
      refused({{"train_micro_batch_size_per_gpu", large}, {"gradient_accumulation_steps", large}}),
      HasSubstr("train_micro_batch_size_per_gpu cannot be"));
}

TEST(DeepspeedPlan, AnAutoThatIsLeftIsRefused) {
  EXPECT_EQ(refused(complete({{"zero_optimization", {{"reduce_bucket_size", "auto"}}}})),
            "nothing is known from which the \"auto\" of zero_optimization.reduce_bucket_size "
            "could be filled in | ds.json: zero_optimization.reduce_bucket_size");
}

OptimizerPlan optimizer(const char* type, json params) {
  return *planned(complete({{"optimizer", {{"type", type}, {"params", std::move(params)}}}}))
              .optimizer;
}

TEST(DeepspeedPlan, AdamIsAdamwUnlessItIsToldOtherwise) {
  EXPECT_EQ(optimizer("Adam", json::object()).kind, PlanOptimizer::kAdamW);
  EXPECT_EQ(optimizer("adam", {{"adam_w_mode", false}}).kind, PlanOptimizer::kAdam);
  EXPECT_THAT(
      refused(complete({{"optimizer", {{"type", "AdamW"}, {"params", {{"adam_w_mode", false}}}}}})),
      HasSubstr("the optimizer is AdamW, but adam_w_mode is false | ds.json: "
                "optimizer.type and ds.json: optimizer.params.adam_w_mode"));
}

TEST(DeepspeedPlan, WeightDecayWhereNobodyGivesItIsThatOfWhoeverUpdates) {
  EXPECT_EQ(optimizer("AdamW", json::object()).weight_decay, 0);
  EXPECT_EQ(optimizer("AdamW", {{"torch_adam", true}}).weight_decay, 0.01);
  EXPECT_EQ(optimizer("Adam", {{"torch_adam", true}, {"adam_w_mode", false}}).weight_decay, 0);
}

TEST(DeepspeedPlan, ParametersOfAnotherOptimizerAreRefused) {
  const auto with = [](const char* type, json params) {
    return refused(complete({{"optimizer", {{"type", type}, {"params", std::move(params)}}}}));
  };
  EXPECT_THAT(with("SGD", {{"betas", {0.9, 0.99}}}), HasSubstr("SGD has no parameter betas"));
  EXPECT_THAT(with("AdamW", {{"momentum", 0.9}}), HasSubstr("AdamW has no parameter momentum"));
  EXPECT_THAT(with("AdamW", {{"betas", {0.9}}}), HasSubstr("a list of two numbers from 0 to 1"));
  EXPECT_THAT(with("SGD", {{"nesterov", true}}), HasSubstr("nesterov needs a momentum"));
  EXPECT_THAT(with("AdamW", {{"max_grad_norm", 1.0}}),
              HasSubstr("max_grad_norm is not a parameter of an optimizer"));
  EXPECT_THAT(with("AdamW", {{"weight_decy", 1.0}}),
              HasSubstr("have no key weight_decy in optimizer.params"));
  EXPECT_EQ(with("Lion", json::object()),
            "optimizer.type cannot be Lion: it must be Adam, AdamW or SGD | ds.json: "
            "optimizer.type");
}

std::string scheduler_refusal(const char* type, json params) {
  return refused(complete({{"scheduler", {{"type", type}, {"params", std::move(params)}}}}));
}

TEST(DeepspeedPlan, SchedulesAreRefusedWhereTheirParametersDoNotFit) {
  EXPECT_THAT(scheduler_refusal("OneCycle", json::object()),
              HasSubstr("it must be WarmupLR, WarmupDecayLR or WarmupCosineLR"));
  EXPECT_THAT(scheduler_refusal("WarmupDecayLR", json::object()),
              HasSubstr("scheduler.params.total_num_steps is missing"));
  EXPECT_THAT(scheduler_refusal("WarmupLR", {{"warmup_num_steps", 0}}),
              HasSubstr("it must be a whole number not below 1"));
  EXPECT_THAT(scheduler_refusal("WarmupLR", {{"total_num_steps", 9}}),
              HasSubstr("WarmupLR has no parameter total_num_steps"));
  EXPECT_THAT(scheduler_refusal("WarmupLR", {{"warmup_type", "cubic"}}),
              HasSubstr("it must be log or linear"));
  EXPECT_THAT(scheduler_refusal("WarmupCosineLR", {{"total_num_steps", 9}, {"warmup_max_lr", 1}}),
              HasSubstr("WarmupCosineLR has no parameter warmup_max_lr"));
}

TEST(DeepspeedPlan, PrecisionAndItsScalesAreRead) {
  const PrecisionPlan plan = planned(complete({{"fp16",
                                                {{"enabled", true},
                                                 {"loss_scale", 128},
                                                 {"initial_scale_power", 8},
                                                 {"loss_scale_window", 50},
                                                 {"hysteresis", 3},
                                                 {"consecutive_hysteresis", true},
                                                 {"min_loss_scale", 2}}},
                                               {"communication_data_type", "fp32"},
                                               {"data_types", {{"grad_accum_dtype", "bf16"}}}}))
                                 .precision;
  EXPECT_EQ(plan.dtype, PlanDtype::kFloat16);
  EXPECT_EQ(plan.reduce_dtype, PlanDtype::kFloat32);
  EXPECT_EQ(plan.accumulate_dtype, PlanDtype::kBfloat16);
  EXPECT_EQ(plan.loss_scale, (LossScalePlan{128, 8, 50, 3, true, 2}));
  EXPECT_THAT(refused(complete({{"fp16", {{"enabled", true}}}, {"bf16", {{"enabled", true}}}})),
              HasSubstr("fp16 and bf16 are both enabled | ds.json: fp16.enabled and ds.json: "
                        "bf16.enabled"));
}

TEST(DeepspeedPlan, TheOlderNameOfBf16Counts) {
  const json older = {{"bfloat16", {{"enabled", true}}}};
  EXPECT_EQ(planned(complete(older)).precision.dtype, PlanDtype::kBfloat16);
  EXPECT_THAT(refused(complete({{"bfloat16", {{"enabled", true}}}, {"bf16", {{"enabled", true}}}})),
              HasSubstr("bfloat16 is the older name of bf16"));
}

TEST(DeepspeedPlan, TheTypeOfParametersMustBeThatOfTheComputation) {
  const json types = {{"data_types", {{"param_dtype", "bf16"}}}};
  EXPECT_THAT(refused(complete(types)),
              HasSubstr("data_types.param_dtype is bf16, but the precision is fp32 | ds.json: "
                        "data_types.param_dtype and ds.json: bf16.enabled"));
  json fitting = types;
  fitting["bf16"] = {{"enabled", true}};
  EXPECT_EQ(refused(complete(fitting)), "taken");
}

TEST(DeepspeedPlan, ShardsOfAReplicaMustDivideTheRanks) {
  const json config = complete({{"zero_optimization", {{"mics_shard_size", 2}}}});
  EXPECT_EQ(planned(config, 4).zero.shard_size, 2);
  EXPECT_THAT(refused(config, 3), HasSubstr("3 ranks cannot be divided into groups of 2"));
  const json all = complete({{"zero_optimization", {{"mics_shard_size", -1}}}});
  EXPECT_EQ(planned(all, 3).zero.shard_size, std::nullopt);
}

TEST(DeepspeedKeys, WhatHasNoEffectIsListedOnceByItsName) {
  EXPECT_THAT(planned(complete({{"steps_per_print", 10},
                                {"wall_clock_breakdown", false},
                                {"tensorboard", {{"enabled", true}, {"output_path", "x"}}},
                                {"zero_optimization", {{"contiguous_gradients", true}}},
                                {"my_own_note", "for people"}}))
                  .without_effect,
              ElementsAre("my_own_note", "steps_per_print", "tensorboard", "wall_clock_breakdown",
                          "zero_optimization.contiguous_gradients"));
}

TEST(DeepspeedKeys, WhatWouldChangeTheNumbersIsRefusedUnlessItIsOff) {
  EXPECT_EQ(refused(complete({{"amp", {{"enabled", true}}}})),
            "amp is not available here: Apex | ds.json: amp");
  EXPECT_EQ(refused(complete({{"amp", {{"enabled", false}, {"opt_level", "O1"}}}})), "taken");
  EXPECT_EQ(refused(complete({{"sequence_parallel_size", 1}})), "taken");
  EXPECT_THAT(refused(complete({{"sequence_parallel_size", 2}})), HasSubstr("sequence parallel"));
  EXPECT_THAT(refused(complete({{"tensor_parallel", {{"autotp_size", 2}}}})),
              HasSubstr("tensor parallel ranks"));
  EXPECT_EQ(refused(complete({{"tensor_parallel", {{"autotp_size", 0}, {"tp_grain_size", 8}}}})),
            "taken");
  EXPECT_THAT(refused(complete({{"gradient_allreduce_op", "sum"}})), HasSubstr("sums"));
  EXPECT_THAT(refused(complete({{"zero_optimization", {{"zero_quantized_weights", true}}}})),
              HasSubstr("zero_optimization.zero_quantized_weights is not available here"));
  EXPECT_THAT(refused(complete(
                  {{"optimizer", {{"type", "Adam"}, {"params", {{"bias_correction", false}}}}}})),
              HasSubstr("Adam without bias correction"));
}

TEST(DeepspeedKeys, MistypedKeysAreRefused) {
  EXPECT_THAT(refused(complete({{"gradient_cliping", 1.0}})),
              HasSubstr("DeepSpeed configurations have no key gradient_cliping"));
  EXPECT_THAT(refused(complete({{"zero_optimization", {{"anything", 1}}}})),
              HasSubstr("have no key anything in zero_optimization"));
  EXPECT_THAT(refused(complete({{"zero_optimization.stage", 3}})),
              HasSubstr("cannot have zero_optimization.stage as one key"));
  EXPECT_THAT(refused(complete({{"zero_optimization", {{"offload_optimizer", 3}}}})),
              HasSubstr("zero_optimization.offload_optimizer must be an object, not 3"));
}

TEST(DeepspeedKeys, TheTableHasEveryKeyOnce) {
  std::set<std::string_view> paths;
  for (const DeepspeedKey& key : deepspeed_keys()) {
    EXPECT_TRUE(paths.insert(key.path).second) << key.path;
    if (key.effect != KeyEffect::kNoEffect) EXPECT_FALSE(key.about.empty()) << key.path;
  }
}

}  // namespace
}  // namespace accelerate::config
