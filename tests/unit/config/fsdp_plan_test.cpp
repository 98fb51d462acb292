// What settings of FSDP ask for, in both versions.
#include "config/sharding/fsdp_plan.h"

#include <gmock/gmock.h>

#include <map>

#include "accelerate/errors.h"
#include "config/config_file.h"
#include "config/fsdp2.h"
#include "config/given_settings.h"
#include "config/settings.h"

namespace accelerate::config {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using FsdpTexts = std::map<std::string, std::string, std::less<>>;

FsdpPlan fsdp_planned(const FsdpTexts& texts) {
  return fsdp_plan([&](std::string_view name) -> std::optional<GivenValue> {
    const auto found = texts.find(name);
    if (found == texts.end()) return std::nullopt;
    return GivenValue{found->second, "--" + found->first};
  });
}

// "message | place"
std::string fsdp_refusal(const FsdpTexts& texts) {
  try {
    fsdp_planned(texts);
  } catch (const ConfigError& error) {
    return error.message() + " | " + error.where();
  }
  return "taken";
}

// The plan of an fsdp_config of an accelerate file.
FsdpPlan planned_by_file(const std::string& fsdp_config) {
  const ConfigFile file = interpret_config(
      parse_config_text("num_processes: 4\ndistributed_type: FSDP\nfsdp_config:\n" + fsdp_config,
                        "c.yaml"),
      "c.yaml");
  const Settings settings = resolve_settings({.file = &file});
  return fsdp_plan(given_settings(settings));
}

TEST(FsdpPlan, AFileIsReadWithItsOlderNames) {
  const FsdpPlan plan = planned_by_file(
      "  fsdp_version: 2\n"
      "  fsdp_reshard_after_forward: false\n"
      "  fsdp_auto_wrap_policy: transformer_based_wrap\n"
      "  fsdp_transformer_layer_cls_to_wrap: Block, Embedding\n"
      "  fsdp_offload_params: true\n"
      "  fsdp_cpu_ram_efficient_loading: false\n"
      "  fsdp_activation_checkpointing: true\n"
      "  fsdp_ignored_modules: head.*\n"
      "  fsdp_backward_prefetch_policy: BACKWARD_PRE\n");
  FsdpPlan expected;
  expected.version = 2;
  expected.sharding = FsdpSharding::kGradients;
  expected.reshard_after_forward = false;
  expected.units = FsdpUnits::kByClass;
  expected.unit_classes = {"Block", "Embedding"};
  expected.offload_params = true;
  expected.cpu_ram_efficient_loading = false;
  expected.activation_checkpointing = true;
  expected.ignored_modules = "head.*";
  expected.without_effect = {"fsdp_backward_prefetch (c.yaml:12)"};
  EXPECT_EQ(plan, expected);
}

TEST(FsdpPlan, StrategiesOfVersion1HaveNamesAndNumbers) {
  const auto sharding = [](const char* text) {
    return fsdp_planned({{"fsdp_sharding_strategy", text}}).sharding;
  };
  EXPECT_EQ(sharding("full_shard"), FsdpSharding::kFull);
  EXPECT_EQ(sharding("2"), FsdpSharding::kGradients);
  EXPECT_EQ(sharding("NO_SHARD"), FsdpSharding::kNone);
  EXPECT_EQ(sharding("4"), FsdpSharding::kHybrid);
  EXPECT_EQ(sharding("HYBRID_SHARD_ZERO2"), FsdpSharding::kHybridGradients);
  EXPECT_TRUE(fsdp_planned({{"fsdp_sharding_strategy", "4"}}).reshard_after_forward);
  EXPECT_FALSE(fsdp_planned({{"fsdp_sharding_strategy", "5"}}).reshard_after_forward);
}

TEST(FsdpPlan, InVersion1ReshardingMayNameTheStrategy) {
  // FULL_SHARD and true are what workers are told where nobody said anything.
  EXPECT_EQ(fsdp_planned({{"fsdp_sharding_strategy", "FULL_SHARD"},
                          {"fsdp_reshard_after_forward", "SHARD_GRAD_OP"}})
                .sharding,
            FsdpSharding::kGradients);
  EXPECT_EQ(
      fsdp_planned({{"fsdp_sharding_strategy", "NO_SHARD"}, {"fsdp_reshard_after_forward", "true"}})
          .sharding,
      FsdpSharding::kNone);
  EXPECT_EQ(fsdp_refusal({{"fsdp_sharding_strategy", "NO_SHARD"},
                          {"fsdp_reshard_after_forward", "SHARD_GRAD_OP"}}),
            "fsdp_sharding_strategy is NO_SHARD, but fsdp_reshard_after_forward is SHARD_GRAD_OP | "
            "--fsdp_sharding_strategy and --fsdp_reshard_after_forward");
  EXPECT_THAT(fsdp_refusal({{"fsdp_reshard_after_forward", "false"}}),
              HasSubstr("which version 1 of FSDP does not have"));
}

TEST(FsdpPlan, InVersion2ReshardingIsYesOrNo) {
  const auto with = [](FsdpTexts texts) {
    texts["fsdp_version"] = "2";
    return texts;
  };
  EXPECT_EQ(fsdp_planned(with({})).sharding, FsdpSharding::kFull);
  EXPECT_EQ(fsdp_planned(with({{"fsdp_reshard_after_forward", "false"}})).sharding,
            FsdpSharding::kGradients);
  EXPECT_EQ(fsdp_planned(with({{"parallelism_config_dp_replicate_size", "2"}})).sharding,
            FsdpSharding::kHybrid);
  EXPECT_THAT(fsdp_refusal(with({{"fsdp_reshard_after_forward", "FULL_SHARD"}})),
              HasSubstr("in version 2 of FSDP it must be true or false"));
}

TEST(FsdpPlan, AStrategyThatVersion2WouldLoseIsRefused) {
  EXPECT_EQ(fsdp_refusal({{"fsdp_version", "2"}, {"fsdp_sharding_strategy", "SHARD_GRAD_OP"}}),
            "fsdp_sharding_strategy is SHARD_GRAD_OP, which version 2 of FSDP does not read | "
            "--fsdp_sharding_strategy");
  EXPECT_EQ(fsdp_refusal({{"fsdp_version", "2"},
                          {"fsdp_sharding_strategy", "SHARD_GRAD_OP"},
                          {"fsdp_reshard_after_forward", "false"}}),
            "taken");
  EXPECT_THAT(fsdp_refusal({{"fsdp_version", "2"},
                            {"fsdp_sharding_strategy", "NO_SHARD"},
                            {"fsdp_reshard_after_forward", "false"}}),
              HasSubstr("--fsdp_sharding_strategy and --fsdp_reshard_after_forward"));
}

TEST(FsdpPlan, ClassesNeedThePolicyThatReadsThem) {
  EXPECT_THAT(fsdp_refusal({{"fsdp_transformer_layer_cls_to_wrap", "Block"}}),
              HasSubstr("names classes, but fsdp_auto_wrap_policy is not given"));
  EXPECT_THAT(fsdp_refusal({{"fsdp_transformer_layer_cls_to_wrap", "Block"},
                            {"fsdp_auto_wrap_policy", "SIZE_BASED_WRAP"}}),
              HasSubstr("--fsdp_transformer_layer_cls_to_wrap and --fsdp_auto_wrap_policy"));
  const FsdpPlan plan =
      fsdp_planned({{"fsdp_auto_wrap_policy", "SIZE_BASED_WRAP"}, {"fsdp_min_num_params", "1000"}});
  EXPECT_EQ(plan.units, FsdpUnits::kBySize);
  EXPECT_EQ(plan.min_num_params, 1000);
}

TEST(FsdpPlan, RanksWithoutWeightsMustGetThemFromRank0) {
  EXPECT_EQ(fsdp_refusal(
                {{"fsdp_sync_module_states", "false"}, {"fsdp_cpu_ram_efficient_loading", "true"}}),
            "fsdp_cpu_ram_efficient_loading needs fsdp_sync_module_states: the other ranks get "
            "their weights from rank 0 | --fsdp_sync_module_states and "
            "--fsdp_cpu_ram_efficient_loading");
  EXPECT_FALSE(fsdp_planned({{"fsdp_sync_module_states", "false"},
                             {"fsdp_cpu_ram_efficient_loading", "false"}})
                   .sync_module_states);
}

TEST(FsdpPlan, WhatTheLibraryDecidesItselfIsListed) {
  EXPECT_THAT(fsdp_planned({{"fsdp_state_dict_type", "FULL_STATE_DICT"},
                            {"fsdp_forward_prefetch", "true"},
                            {"fsdp_use_orig_params", "false"}})
                  .without_effect,
              ElementsAre("fsdp_state_dict_type (--fsdp_state_dict_type)",
                          "fsdp_forward_prefetch (--fsdp_forward_prefetch)",
                          "fsdp_use_orig_params (--fsdp_use_orig_params)"));
  EXPECT_THAT(fsdp_planned({{"fsdp_forward_prefetch", "false"}, {"fsdp_use_orig_params", "true"}})
                  .without_effect,
              IsEmpty());
  EXPECT_THAT(fsdp_refusal({{"fsdp_version", "2"}, {"fsdp_state_dict_type", "LOCAL_STATE_DICT"}}),
              HasSubstr("does not have LOCAL_STATE_DICT"));
}

TEST(FsdpPlan, WrongValuesAreNamed) {
  EXPECT_EQ(fsdp_refusal({{"fsdp_version", "3"}}),
            "fsdp_version cannot be '3': it must be 1 or 2 | --fsdp_version");
  EXPECT_EQ(fsdp_refusal({{"fsdp_offload_params", "perhaps"}}),
            "fsdp_offload_params cannot be 'perhaps': it must be true or false | "
            "--fsdp_offload_params");
  EXPECT_EQ(fsdp_refusal({{"fsdp_min_num_params", "-1"}}),
            "fsdp_min_num_params cannot be '-1': it must be a whole number not below 0 | "
            "--fsdp_min_num_params");
}

std::string converted(const std::string& fsdp_config) {
  const FileNode document = parse_config_text("fsdp_config:\n" + fsdp_config, "c.yaml");
  return yaml_text(to_fsdp2(document).document);
}

TEST(ToFsdp2, NumbersOfStrategiesAreConverted) {
  EXPECT_EQ(converted("  fsdp_sharding_strategy: 2\n"),
            "fsdp_config:\n  fsdp_reshard_after_forward: false\n  fsdp_version: 2\n");
  EXPECT_EQ(converted("  fsdp_sharding_strategy: hybrid_shard\n"),
            "fsdp_config:\n  fsdp_reshard_after_forward: true\n  fsdp_version: 2\n");
}

TEST(ToFsdp2, WhatVersion2DoesOtherwiseIsNoted) {
  const auto notes = [](const std::string& strategy) {
    const std::string text = "fsdp_config:\n  fsdp_sharding_strategy: " + strategy + "\n";
    return to_fsdp2(parse_config_text(text, "c.yaml")).notes;
  };
  EXPECT_THAT(notes("FULL_SHARD"), IsEmpty());
  EXPECT_THAT(notes("NO_SHARD"), ElementsAre(HasSubstr("version 2 always shards")));
  EXPECT_THAT(notes("4"), ElementsAre(HasSubstr("HYBRID_SHARD: version 2 takes replicas")));
}

TEST(ToFsdp2, TheStrategyCountsWhereBothKeysStand) {
  EXPECT_EQ(converted("  fsdp_sharding_strategy: SHARD_GRAD_OP\n"
                      "  fsdp_reshard_after_forward: true\n"),
            "fsdp_config:\n  fsdp_reshard_after_forward: false\n  fsdp_version: 2\n");
  try {
    converted(
        "  fsdp_sharding_strategy: SHARD_GRAD_OP\n"
        "  fsdp_reshard_after_forward: FULL_SHARD\n");
    ADD_FAILURE() << "not refused";
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.message(),
              "fsdp_sharding_strategy is SHARD_GRAD_OP, but fsdp_reshard_after_forward is "
              "FULL_SHARD");
  }
}

}  // namespace
}  // namespace accelerate::config
