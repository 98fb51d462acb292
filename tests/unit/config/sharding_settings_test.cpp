// The table of flags and variables against the schema, and against docs/deepspeed.md.
#include "config/sharding/sharding_settings.h"

#include <gmock/gmock.h>

#include <map>

#include "config/config_file.h"
#include "config/given_settings.h"
#include "config/schema.h"
#include "config/settings.h"
#include "config/sharding/deepspeed_keys.h"

namespace accelerate::config {
namespace {

using ::testing::IsEmpty;

TEST(ShardingSettings, EveryRowIsASettingWithItsVariable) {
  for (const ShardingSetting& row : sharding_settings()) {
    const Setting* setting = find_setting(row.name);
    ASSERT_NE(setting, nullptr) << row.name;
    EXPECT_EQ(variable_of(*setting), row.variable) << row.name;
    EXPECT_EQ(find_sharding_setting(row.name), &row);
  }
  EXPECT_EQ(find_sharding_setting("num_processes"), nullptr);
}

// But for the ones that say whether there is anything to read.
TEST(ShardingSettings, EverySettingOfTheFamiliesThatWorkersAreToldHasARow) {
  std::vector<std::string_view> missing;
  for (const Setting* setting : all_settings()) {
    const bool is_family = setting->group == Group::kFsdp || setting->group == Group::kDeepspeed;
    if (!is_family || variable_of(*setting).empty()) continue;
    if (setting->name.starts_with("use_")) continue;
    if (find_sharding_setting(setting->name) == nullptr) missing.push_back(setting->name);
  }
  EXPECT_THAT(missing, IsEmpty());
}

TEST(ShardingSettings, WhatARowDecidesInDeepspeedsConfigurationIsAKeyThatIsUsed) {
  for (const ShardingSetting& row : sharding_settings()) {
    if (row.family != ShardingFamily::kDeepspeed || row.decides.size() < 2) continue;
    if (row.name == "zero3_init_flag") continue;  // beside the configuration
    const auto rows = deepspeed_keys();
    const auto key = std::ranges::find(rows, row.decides, &DeepspeedKey::path);
    ASSERT_NE(key, rows.end()) << row.decides;
    EXPECT_EQ(key->effect, KeyEffect::kUsed) << row.decides;
  }
}

TEST(ShardingSettings, VariablesOfAWorkerSayWhereTheyComeFrom) {
  const std::map<std::string, std::string> variables{
      {"ACCELERATE_DEEPSPEED_ZERO_STAGE", "3"},
      {"ACCELERATE_GRADIENT_CLIPPING", "1.0"},
      {"ACCELERATE_CONFIG_DS_FIELDS", "zero_stage,mixed_precision"},
      {"FSDP_VERSION", ""}};
  const GivenValues given = given_by_variables([&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
  EXPECT_EQ(given("zero_stage")->text, "3");
  EXPECT_EQ(given("zero_stage")->place,
            "environment variable ACCELERATE_DEEPSPEED_ZERO_STAGE, from deepspeed_config of the "
            "launcher's file");
  EXPECT_EQ(given("gradient_clipping")->place, "environment variable ACCELERATE_GRADIENT_CLIPPING");
  EXPECT_FALSE(given("fsdp_version"));
  EXPECT_FALSE(given("offload_param_device"));
  EXPECT_FALSE(given("num_processes"));
}

TEST(GivenSettings, PresetsAreNotGiven) {
  const ConfigFile file = interpret_config(
      parse_config_text("num_processes: 2\ndistributed_type: DEEPSPEED\ndeepspeed_config:\n"
                        "  zero_stage: 3\n",
                        "c.yaml"),
      "c.yaml");
  const Settings settings = resolve_settings({.file = &file});
  const GivenValues given = given_settings(settings);
  EXPECT_EQ(given("zero_stage")->text, "3");
  EXPECT_EQ(given("zero_stage")->place, "c.yaml:4");
  EXPECT_FALSE(given("fsdp_sharding_strategy"));
}

}  // namespace
}  // namespace accelerate::config
