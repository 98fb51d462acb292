// What variables of DeepSpeed and FSDP make of the options of an accelerator.
#include "multiproc/configured/configured.h"

namespace accelerate::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct ConfiguredOptions : Ranks {};

TEST_F(ConfiguredOptions, AConfigurationOfDeepspeedChoosesTheStage) {
  run(2, [](const Rank&) {
    for (const int stage : zero_stages()) {
      const RankVariables set(deepspeed_variables(deepspeed_config(stage)));
      const Accelerator accelerator(on_cpu());
      EXPECT_EQ(accelerator.strategy_name(), "zero");
      EXPECT_EQ(zero_of(accelerator.options()).stage, stage);
    }
    const RankVariables set(deepspeed_variables(deepspeed_config(0)));
    EXPECT_EQ(Accelerator(on_cpu()).strategy_name(), "ddp");
  });
}

TEST_F(ConfiguredOptions, FlagsOfTheLauncherAreEnough) {
  run(2, [](const Rank&) {
    const AcceleratorOptions two = settled({{"ACCELERATE_USE_DEEPSPEED", "true"}});
    EXPECT_EQ(zero_of(two).stage, 2);
    EXPECT_EQ(two.gradient_accumulation.steps, 1);
    const AcceleratorOptions three = settled({{"ACCELERATE_USE_DEEPSPEED", "true"},
                                              {"ACCELERATE_DEEPSPEED_ZERO_STAGE", "3"},
                                              {"ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "4"},
                                              {"ACCELERATE_MIXED_PRECISION", "bf16"}});
    EXPECT_EQ(zero_of(three), (ZeroOptions{.stage = 3}));
    EXPECT_EQ(three.gradient_accumulation.steps, 4);
    EXPECT_EQ(three.mixed_precision, MixedPrecision::kBf16);
  });
}

TEST_F(ConfiguredOptions, SettingsOfFsdpChooseTheStageAndTheUnits) {
  run(2, [](const Rank&) {
    EXPECT_EQ(zero_of(settled(fsdp_variables())), (ZeroOptions{.stage = 3}));
    EXPECT_EQ(zero_of(settled(fsdp_variables({{"FSDP_SHARDING_STRATEGY", "SHARD_GRAD_OP"}}))).stage,
              2);
    EXPECT_EQ(zero_of(settled(fsdp_variables(
                          {{"FSDP_VERSION", "2"}, {"FSDP_RESHARD_AFTER_FORWARD", "false"}})))
                  .stage,
              2);
    const ZeroUnits units =
        zero_of(settled(fsdp_variables({{"FSDP_AUTO_WRAP_POLICY", "TRANSFORMER_BASED_WRAP"},
                                        {"FSDP_TRANSFORMER_CLS_TO_WRAP", "Linear"}})))
            .units;
    EXPECT_EQ(units, (ZeroUnits{.modules = {"Linear"}}));
    const RankVariables set(fsdp_variables({{"FSDP_SHARDING_STRATEGY", "NO_SHARD"}}));
    EXPECT_EQ(Accelerator(on_cpu()).strategy_name(), "ddp");
  });
}

TEST_F(ConfiguredOptions, UnusedParametersAreFoundWhereTheConfigurationSaysSo) {
  run(2, [](const Rank&) {
    const json ignored = {{"zero_optimization", {{"ignore_unused_parameters", true}}}};
    EXPECT_TRUE(
        settled(deepspeed_variables(deepspeed_config(0, ignored))).ddp.find_unused_parameters);
    EXPECT_TRUE(zero_of(settled(deepspeed_variables(deepspeed_config(1, ignored))))
                    .ddp.find_unused_parameters);
    EXPECT_FALSE(
        zero_of(settled(deepspeed_variables(deepspeed_config(1)))).ddp.find_unused_parameters);
  });
}

TEST_F(ConfiguredOptions, GradientsAreReducedInTheTypeOfTheConfiguration) {
  run(2, [](const Rank&) {
    const json half = {{"communication_data_type", "bf16"}};
    EXPECT_EQ(settled(deepspeed_variables(deepspeed_config(0, half))).ddp.comm_hook.hook,
              CommHook::kBf16);
    const ZeroOptions one = zero_of(settled(deepspeed_variables(deepspeed_config(1, half))));
    EXPECT_EQ(one.ddp.comm_hook.hook, CommHook::kBf16);
    EXPECT_EQ(one.reduce_dtype, std::nullopt);
    for (const int stage : {2, 3}) {
      const ZeroOptions zero = zero_of(settled(deepspeed_variables(deepspeed_config(stage, half))));
      EXPECT_EQ(zero.reduce_dtype, at::kBFloat16);
      EXPECT_EQ(zero.ddp.comm_hook.hook, CommHook::kNo);
    }
  });
}

TEST_F(ConfiguredOptions, OneProcessHasNobodyToShareWith) {
  run(1, [](const Rank&) {
    const RankVariables set(deepspeed_variables(deepspeed_config(3)));
    EXPECT_EQ(Accelerator(on_cpu()).strategy_name(), "single");
  });
}

TEST_F(ConfiguredOptions, SizesAreThoseOfTheConfiguration) {
  run(2, [](const Rank&) {
    const json sizes = {{"zero_optimization",
                         {{"reduce_bucket_size", 262144},
                          {"stage3_param_persistence_threshold", 7},
                          {"stage3_max_live_parameters", 8},
                          {"stage3_max_reuse_distance", 9},
                          {"stage3_prefetch_bucket_size", 0}}}};
    const ZeroOptions zero = zero_of(settled(deepspeed_variables(deepspeed_config(3, sizes))));
    EXPECT_EQ(zero, (ZeroOptions{.stage = 3,
                                 .ddp = {.bucket_cap_mb = 1},
                                 .units = {.persistence_threshold = 7,
                                           .max_reuse_distance = 9,
                                           .max_live_parameters = 8,
                                           .prefetch = 0}}));
  });
}

// The widest norm says how wide a transformer is.
struct Normed : Mlp {
  Normed()
      : Mlp(40),
        norm(register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({40})))) {
    to(test_device());
  }
  at::Tensor forward(at::Tensor input) override { return second(norm(torch::tanh(first(input)))); }
  torch::nn::LayerNorm norm;
};

TEST_F(ConfiguredOptions, OpenSizesAreFilledInWhenTheModelIsThere) {
  run(2, [](const Rank&) {
    const json open = {{"zero_optimization",
                        {{"reduce_bucket_size", "auto"},
                         {"stage3_prefetch_bucket_size", "auto"},
                         {"stage3_param_persistence_threshold", "auto"}}}};
    const RankVariables set(deepspeed_variables(deepspeed_config(3, open)));
    Accelerator accelerator(on_cpu());
    EXPECT_EQ(zero_of(accelerator.options()), (ZeroOptions{.stage = 3}));
    torch::manual_seed(1);
    auto model = accelerator.prepare(std::make_shared<Normed>());
    const ZeroOptions filled = zero_of(accelerator.options());
    EXPECT_EQ(filled.units.persistence_threshold, 400);
    EXPECT_EQ(filled.ddp.bucket_cap_mb, 40.0 * 40 * 4 / 1024 / 1024);
    // Only the second of the matrices is below 400: what is small is whole.
    const auto values = model.module()->second->weight.detach();
    EXPECT_EQ(values.numel(), 120);
    Accelerator without_norms(on_cpu());
    torch::manual_seed(1);
    without_norms.prepare(std::make_shared<Mlp>());
    EXPECT_EQ(zero_of(without_norms.options()), (ZeroOptions{.stage = 3}));
  });
}

TEST_F(ConfiguredOptions, AStrategyOfTheProgramMustBeTheSame) {
  run(2, [](const Rank&) {
    const auto variables = deepspeed_variables(deepspeed_config(2));
    const auto with = [](StrategyOptions strategy) {
      AcceleratorOptions options = on_cpu();
      options.strategy = std::move(strategy);
      return options;
    };
    EXPECT_THAT(config_refusal(variables, with(ZeroOptions{.stage = 3})),
                AllOf(HasSubstr("the program names ZeroOptions of stage 3, and the configuration "
                                "says that it is stage 2 | AcceleratorOptions::strategy and "),
                      HasSubstr("zero_optimization.stage")));
    EXPECT_THAT(config_refusal(variables, with(DdpOptions{})),
                HasSubstr("the program names DdpOptions"));
    EXPECT_THAT(config_refusal(variables, with(FsdpOptions{})),
                HasSubstr("FsdpOptions of stage 3"));
    EXPECT_THAT(
        config_refusal(deepspeed_variables(deepspeed_config(0)), with(ZeroOptions{.stage = 1})),
        HasSubstr("the configuration says that nothing is sharded (DDP)"));
    const ZeroOptions own{.stage = 2, .ddp = {.bucket_cap_mb = 3}};
    EXPECT_EQ(zero_of(settled(variables, with(own))), own);
    const json other = {{"zero_optimization", {{"reduce_bucket_size", 262144}}}};
    EXPECT_THAT(config_refusal(deepspeed_variables(deepspeed_config(2, other)), with(own)),
                AllOf(HasSubstr("set ZeroOptions::ddp.bucket_cap_mb differently"),
                      HasSubstr("zero_optimization.reduce_bucket_size")));
    EXPECT_THAT(config_refusal(fsdp_variables(), with(ZeroOptions{.stage = 2})),
                HasSubstr("the configuration says that it is stage 3"));
  });
}

TEST_F(ConfiguredOptions, WhatCannotBeDoneIsRefusedByItsKeyAndItsVariable) {
  run(1, [](const Rank&) {
    EXPECT_EQ(config_refusal({{"ACCELERATE_USE_DEEPSPEED", "true"},
                              {"ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE", "cpu"}}),
              "offload_optimizer to cpu is not part of this build | environment variable "
              "ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE");
    EXPECT_EQ(config_refusal(fsdp_variables({{"FSDP_OFFLOAD_PARAMS", "true"}})),
              "parameters in host memory are not part of this build | environment variable "
              "FSDP_OFFLOAD_PARAMS");
    EXPECT_EQ(config_refusal(fsdp_variables({{"ACCELERATE_USE_DEEPSPEED", "true"}})),
              "this process is told to train with DeepSpeed and with FSDP | environment variable "
              "ACCELERATE_USE_DEEPSPEED and environment variable ACCELERATE_USE_FSDP");
    EXPECT_THAT(config_refusal(deepspeed_variables({{"zero_optimization", {{"stagee", 1}}}})),
                HasSubstr("stagee"));
    EXPECT_THAT(config_refusal({{"ACCELERATE_USE_DEEPSPEED", "true"},
                                {"ACCELERATE_DEEPSPEED_CONFIG_FILE", "nowhere.json"}}),
                HasSubstr("nowhere.json"));
  });
}

TEST_F(ConfiguredOptions, PrecisionIsThatOfTheConfiguration) {
  run(1, [](const Rank&) {
    const auto with = [](const char* section, json more = {{"enabled", true}}) {
      return deepspeed_variables(deepspeed_config(1, {{section, std::move(more)}}));
    };
    EXPECT_EQ(settled(with("bf16")).mixed_precision, MixedPrecision::kBf16);
    EXPECT_EQ(settled(with("bf16", {{"enabled", "auto"}})).mixed_precision, MixedPrecision::kNo);
    AcceleratorOptions no = on_cpu();
    no.mixed_precision = "no";
    EXPECT_THAT(config_refusal(with("bf16"), no),
                AllOf(HasSubstr("mixed_precision is no, but bf16 is enabled"),
                      HasSubstr("AcceleratorOptions::mixed_precision and ")));
    AcceleratorOptions bf16 = on_cpu();
    bf16.mixed_precision = "bf16";
    EXPECT_THAT(config_refusal(with("fp16"), bf16), HasSubstr("mixed_precision is bf16, but"));
    EXPECT_EQ(settled(with("bf16", {{"enabled", "auto"}}), bf16).mixed_precision,
              MixedPrecision::kBf16);
  });
}

TEST_F(ConfiguredOptions, TheScaleOfFp16IsThatOfTheConfiguration) {
  run(1, [](const Rank&) {
    const auto scaler = [](json fp16, const AcceleratorOptions& options = on_cpu()) {
      fp16["enabled"] = true;
      return settled(deepspeed_variables(deepspeed_config(1, {{"fp16", fp16}})), options)
          .grad_scaler;
    };
    const GradScalerOptions usual = scaler(json::object());
    EXPECT_EQ(usual.init_scale, 65536);
    EXPECT_EQ(usual.growth_interval, 1000);
    EXPECT_EQ(usual.hysteresis, 2);
    EXPECT_EQ(usual.min_scale, 1);
    EXPECT_TRUE(usual.adapts);
    const GradScalerOptions own = scaler({{"initial_scale_power", 8},
                                          {"loss_scale_window", 50},
                                          {"hysteresis", 3},
                                          {"consecutive_hysteresis", true},
                                          {"min_loss_scale", 2}});
    EXPECT_EQ(own.init_scale, 256);
    EXPECT_EQ(own.growth_interval, 50);
    EXPECT_EQ(own.hysteresis, 3);
    EXPECT_TRUE(own.overflows_in_a_row);
    EXPECT_EQ(own.min_scale, 2);
    const GradScalerOptions fixed = scaler({{"loss_scale", 128}});
    EXPECT_EQ(fixed.init_scale, 128);
    EXPECT_FALSE(fixed.adapts);
    AcceleratorOptions program = on_cpu();
    program.grad_scaler.growth_interval = 7;
    EXPECT_EQ(scaler(json::object(), program).growth_interval, 7);
    EXPECT_THAT(config_refusal(deepspeed_variables(deepspeed_config(
                                   1, {{"fp16", {{"enabled", true}, {"loss_scale_window", 50}}}})),
                               program),
                AllOf(HasSubstr("GradScalerOptions::growth_interval differently"),
                      HasSubstr("fp16.loss_scale_window")));
  });
}

TEST_F(ConfiguredOptions, AccumulationIsThatOfTheConfiguration) {
  run(2, [](const Rank&) {
    const auto variables =
        deepspeed_variables(deepspeed_config(2, {{"gradient_accumulation_steps", 2}}));
    EXPECT_EQ(settled(variables).gradient_accumulation.steps, 2);
    AcceleratorOptions three = on_cpu();
    three.gradient_accumulation.steps = 3;
    EXPECT_THAT(config_refusal(variables, three),
                HasSubstr("gradient_accumulation_steps is 2 in the DeepSpeed configuration, but 3 "
                          "in the program"));
    // 4 rows on each of 2 ranks.
    EXPECT_EQ(settled(deepspeed_variables(deepspeed_config(2, {{"train_batch_size", 24}})))
                  .gradient_accumulation.steps,
              3);
    EXPECT_THAT(config_refusal(deepspeed_variables(deepspeed_config(2, {{"train_batch_size", 5}}))),
                HasSubstr("train_batch_size is 5, which is not"));
  });
}

TEST_F(ConfiguredOptions, ConfigurationsThatDifferAreToldOnAllRanks) {
  run(2, [](const Rank& rank) {
    const auto of_rank = [&](int stage, double norm) {
      return config_refusal(
          deepspeed_variables(deepspeed_config(stage, {{"gradient_clipping", norm}})));
    };
    EXPECT_THAT(of_rank(1, 1.0 + rank.rank),
                AllOf(HasSubstr("gradient_clipping"), HasSubstr("1.0"), HasSubstr("2.0")));
    EXPECT_THAT(of_rank(1 + rank.rank, 1.0), HasSubstr("the stage of sharding"));
    EXPECT_EQ(of_rank(1, 1.0), "accepted");
  });
}

TEST_F(ConfiguredOptions, WhatHasNoEffectIsListedOnceOnTheMainProcess) {
  spawn(2, [](const Rank&) {
    const RankVariables set(deepspeed_variables(deepspeed_config(
        2, {{"steps_per_print", 10}, {"zero_optimization", {{"contiguous_gradients", true}}}})));
    const Accelerator accelerator(on_cpu());
  });
  wait_all();
  EXPECT_THAT(output_of(0), HasSubstr("warning: without effect in the configuration of DeepSpeed: "
                                      "steps_per_print, zero_optimization.contiguous_gradients\n"));
  EXPECT_EQ(output_of(1), "");
}

}  // namespace
}  // namespace accelerate::test
