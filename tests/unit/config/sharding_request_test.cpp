// What configurations of DeepSpeed and settings of FSDP ask of the strategy of this library, and
// what it refuses by the name of the key.
#include "config/sharding/sharding_request.h"

#include <gmock/gmock.h>

#include <limits>
#include <map>

#include "accelerate/errors.h"

namespace accelerate::config {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

DeepspeedDocument with_zero(json zero, json more = json::object()) {
  json config = {{"zero_optimization", std::move(zero)}};
  config.merge_patch(more);
  return parse_deepspeed(config.dump(), "ds.json");
}

// "message | place"
template <class Ask>
std::string request_refusal(Ask ask) {
  try {
    ask();
  } catch (const ConfigError& error) {
    return error.message() + " | " + error.where();
  }
  return "taken";
}

std::string deepspeed_request_refusal(const json& zero, const json& more = json::object(),
                                      int ranks = 2) {
  return request_refusal([&] { deepspeed_request(with_zero(zero, more), ranks); });
}

TEST(DeepspeedRequest, WhatNobodyGivesIsLeftToTheLibrary) {
  const ShardingRequest request = deepspeed_request(with_zero({{"stage", 3}}), 2);
  EXPECT_EQ(request.stage.value, 3);
  EXPECT_EQ(request.stage.place, "ds.json: zero_optimization.stage");
  EXPECT_FALSE(request.looks_for_unused_parameters);
  EXPECT_FALSE(request.reduce_bucket || request.persistence_threshold ||
               request.max_live_parameters || request.max_reuse_distance || request.prefetches ||
               request.param_dtype || request.reduce_dtype || request.unit_classes ||
               request.unit_numel);
  EXPECT_THAT(request.without_effect, IsEmpty());
}

TEST(DeepspeedRequest, SizesThatAreGivenAreTaken) {
  const ShardingRequest request =
      deepspeed_request(with_zero({{"stage", 3},
                                   {"reduce_bucket_size", 1000},
                                   {"stage3_param_persistence_threshold", 10},
                                   {"stage3_max_live_parameters", 20},
                                   {"stage3_max_reuse_distance", 30},
                                   {"stage3_prefetch_bucket_size", 0}}),
                        2);
  EXPECT_EQ(request.reduce_bucket.value().value, 1000);
  EXPECT_EQ(request.persistence_threshold.value().value, 10);
  EXPECT_EQ(request.max_live_parameters.value().value, 20);
  EXPECT_EQ(request.max_reuse_distance.value().value, 30);
  EXPECT_FALSE(request.prefetches.value().value);
  EXPECT_EQ(request.reduce_bucket->place, "ds.json: zero_optimization.reduce_bucket_size");
}

TEST(DeepspeedRequest, UnusedParametersAreLookedForWhereThatIsSaid) {
  for (const int stage : {0, 1, 2, 3}) {
    const auto looks = [&](json more) {
      more["stage"] = stage;
      return deepspeed_request(with_zero(more), 2).looks_for_unused_parameters;
    };
    EXPECT_FALSE(looks(json::object()));
    EXPECT_EQ(looks({{"ignore_unused_parameters", true}}), stage < 2) << stage;
  }
}

TEST(DeepspeedRequest, SizesOfStage3HaveNoEffectBelow) {
  const ShardingRequest request =
      deepspeed_request(with_zero({{"stage", 2},
                                   {"stage3_max_live_parameters", 20},
                                   {"stage3_gather_16bit_weights_on_model_save", true}}),
                        2);
  EXPECT_FALSE(request.max_live_parameters);
  EXPECT_THAT(request.without_effect,
              ElementsAre("zero_optimization.stage3_gather_16bit_weights_on_model_save "
                          "(save_model() writes the exact weights)",
                          "zero_optimization.stage3_max_live_parameters (only in stage 3)"));
}

TEST(DeepspeedRequest, OpenSizesFollowFromTheModelOrAreTheLibrarys) {
  const json open = {{"stage", 3},
                     {"reduce_bucket_size", "auto"},
                     {"stage3_prefetch_bucket_size", "auto"},
                     {"stage3_param_persistence_threshold", "auto"}};
  DeepspeedDocument document = with_zero(open);
  EXPECT_TRUE(has_open_sizes(document));
  EXPECT_FALSE(deepspeed_request(document, 2).reduce_bucket);
  fill_sizes(document, 64);
  EXPECT_FALSE(has_open_sizes(document));
  const ShardingRequest request = deepspeed_request(document, 2);
  EXPECT_EQ(request.reduce_bucket.value().value, 64 * 64);
  EXPECT_EQ(request.persistence_threshold.value().value, 640);
  EXPECT_TRUE(request.prefetches.value().value);
  EXPECT_THAT(request.reduce_bucket->place, HasSubstr("filled in from the model"));
  DeepspeedDocument without_width = with_zero(open);
  fill_sizes(without_width, std::nullopt);
  EXPECT_FALSE(has_open_sizes(without_width));
  EXPECT_FALSE(deepspeed_request(without_width, 2).persistence_threshold);
}

TEST(DeepspeedRequest, WhatThisBuildCannotDoIsRefusedByItsKey) {
  EXPECT_EQ(deepspeed_request_refusal({{"stage", 2}, {"offload_optimizer", {{"device", "cpu"}}}}),
            "offload_optimizer to cpu is not part of this build | ds.json: "
            "zero_optimization.offload_optimizer.device");
  EXPECT_EQ(deepspeed_request_refusal(
                {{"stage", 3}, {"offload_param", {{"device", "nvme"}, {"nvme_path", "/fast"}}}}),
            "offload_param to nvme is not part of this build | ds.json: "
            "zero_optimization.offload_param.device");
  EXPECT_EQ(deepspeed_request_refusal({{"stage", 2}, {"cpu_offload", true}}),
            "offload_optimizer to cpu is not part of this build | ds.json: "
            "zero_optimization.cpu_offload");
  EXPECT_EQ(deepspeed_request_refusal({{"stage", 3}, {"mics_shard_size", 2}}, json::object(), 4),
            "shards of 2 ranks, with replicas of them, are not part of this build | ds.json: "
            "zero_optimization.mics_shard_size");
  EXPECT_EQ(deepspeed_request_refusal({{"stage", 3}, {"mics_shard_size", 4}}, json::object(), 4),
            "taken");
  EXPECT_THAT(deepspeed_request_refusal({{"stage", 3}, {"stage3_model_persistence_threshold", 5}}),
              HasSubstr("zero_optimization.stage3_model_persistence_threshold"));
  EXPECT_THAT(deepspeed_request_refusal({{"stage", 2}, {"ignore_unused_parameters", false}}),
              HasSubstr("stages 2 and 3 let parameters take no part in a pass"));
  EXPECT_EQ(deepspeed_request_refusal({{"stage", 1}, {"ignore_unused_parameters", false}}),
            "taken");
  EXPECT_THAT(deepspeed_request_refusal({{"stage", 1}, {"reduce_bucket_size", 0}}),
              HasSubstr("a bucket of no numbers"));
  EXPECT_THAT(
      deepspeed_request_refusal(
          {{"stage", 1}}, {{"optimizer", {{"type", "SGD"}, {"params", {{"maximize", true}}}}}}),
      HasSubstr("optimizers that ascend are not part of this build | ds.json: "
                "optimizer.params.maximize"));
}

TEST(DeepspeedRequest, TypesOfGradientsAndParametersAreTaken) {
  const json half = {{"communication_data_type", "bf16"}};
  for (const int stage : {0, 1, 2, 3}) {
    EXPECT_EQ(deepspeed_request(with_zero({{"stage", stage}}, half), 2).reduce_dtype.value().value,
              PlanDtype::kBfloat16);
  }
  EXPECT_EQ(deepspeed_request_refusal({{"stage", 2}}, {{"communication_data_type", "fp32"}}),
            "taken");
  EXPECT_THAT(
      deepspeed_request_refusal({{"stage", 2}}, {{"data_types", {{"grad_accum_dtype", "fp16"}}}}),
      HasSubstr("gradients are accumulated in float32"));
  const json narrow = {{"bf16", {{"enabled", true}}}, {"data_types", {{"param_dtype", "bf16"}}}};
  EXPECT_EQ(deepspeed_request(with_zero({{"stage", 3}}, narrow), 2).param_dtype.value().value,
            PlanDtype::kBfloat16);
  const ShardingRequest below = deepspeed_request(with_zero({{"stage", 2}}, narrow), 2);
  EXPECT_FALSE(below.param_dtype);
  EXPECT_THAT(below.without_effect, ElementsAre("data_types.param_dtype (only in stage 3)"));
}

using FsdpGiven = std::map<std::string, std::string, std::less<>>;

GivenValues fsdp_given(const FsdpGiven& values) {
  return [values](std::string_view name) -> std::optional<GivenValue> {
    const auto found = values.find(name);
    if (found == values.end()) return std::nullopt;
    return GivenValue{found->second, "--" + found->first};
  };
}

std::string fsdp_request_refusal(const FsdpGiven& values, int ranks = 2) {
  return request_refusal([&] { fsdp_request(fsdp_given(values), ranks); });
}

TEST(FsdpRequest, NamesOfFsdpAreStages) {
  const auto stage = [](const FsdpGiven& values) {
    return fsdp_request(fsdp_given(values), 2).stage.value;
  };
  EXPECT_EQ(stage({}), 3);
  EXPECT_EQ(stage({{"fsdp_sharding_strategy", "NO_SHARD"}}), 0);
  EXPECT_EQ(stage({{"fsdp_sharding_strategy", "SHARD_GRAD_OP"}}), 2);
  EXPECT_EQ(stage({{"fsdp_version", "2"}, {"fsdp_reshard_after_forward", "false"}}), 2);
  EXPECT_EQ(stage({{"fsdp_version", "2"}, {"fsdp_reshard_after_forward", "true"}}), 3);
  EXPECT_EQ(fsdp_request(fsdp_given({{"fsdp_sharding_strategy", "SHARD_GRAD_OP"}}), 2).stage.place,
            "--fsdp_sharding_strategy");
}

TEST(FsdpRequest, PoliciesDecideTheUnits) {
  const auto of = [](FsdpGiven values) { return fsdp_request(fsdp_given(values), 2); };
  EXPECT_FALSE(of({}).unit_numel);
  EXPECT_EQ(of({{"fsdp_auto_wrap_policy", "NO_WRAP"}}).unit_numel.value().value,
            std::numeric_limits<int64_t>::max());
  EXPECT_EQ(of({{"fsdp_auto_wrap_policy", "SIZE_BASED_WRAP"}, {"fsdp_min_num_params", "100"}})
                .unit_numel.value()
                .value,
            100);
  EXPECT_THAT(of({{"fsdp_auto_wrap_policy", "TRANSFORMER_BASED_WRAP"},
                  {"fsdp_transformer_layer_cls_to_wrap", "Block, Head"}})
                  .unit_classes.value()
                  .value,
              ElementsAre("Block", "Head"));
  const ShardingRequest by_structure = of({{"fsdp_auto_wrap_policy", "TRANSFORMER_BASED_WRAP"}});
  EXPECT_FALSE(by_structure.unit_classes || by_structure.unit_numel);
  EXPECT_THAT(
      of({{"fsdp_auto_wrap_policy", "NO_WRAP"}, {"fsdp_sharding_strategy", "SHARD_GRAD_OP"}})
          .without_effect,
      ElementsAre("fsdp_auto_wrap_policy (--fsdp_auto_wrap_policy; only where parameters "
                  "are sharded)"));
}

TEST(FsdpRequest, WhatThisBuildCannotDoIsRefusedByItsSetting) {
  EXPECT_EQ(fsdp_request_refusal({{"fsdp_offload_params", "true"}}),
            "parameters in host memory are not part of this build | --fsdp_offload_params");
  EXPECT_EQ(fsdp_request_refusal({{"fsdp_activation_checkpointing", "true"}}),
            "recomputing activations is not part of this build | --fsdp_activation_checkpointing");
  EXPECT_THAT(fsdp_request_refusal({{"fsdp_activation_checkpointing_offload", "true"}}),
              HasSubstr("activations in host memory"));
  EXPECT_THAT(fsdp_request_refusal({{"fsdp_ignored_modules", "head.*"}}),
              HasSubstr("modules that are left unsharded"));
  for (const char* hybrid : {"HYBRID_SHARD", "HYBRID_SHARD_ZERO2"}) {
    EXPECT_EQ(fsdp_request_refusal({{"fsdp_sharding_strategy", hybrid}}),
              "shards inside a node with replicas across nodes are not part of this build | "
              "--fsdp_sharding_strategy");
  }
  EXPECT_THAT(fsdp_request_refusal({{"parallelism_config_dp_shard_size", "2"}}, 4),
              HasSubstr("--parallelism_config_dp_shard_size"));
  EXPECT_EQ(fsdp_request_refusal({{"parallelism_config_dp_shard_size", "4"}}, 4), "taken");
  EXPECT_THAT(fsdp_request_refusal(
                  {{"fsdp_version", "2"}, {"parallelism_config_dp_replicate_size", "2"}}, 4),
              HasSubstr("--parallelism_config_dp_replicate_size"));
}

}  // namespace
}  // namespace accelerate::config
