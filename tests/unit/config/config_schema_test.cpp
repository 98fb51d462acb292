// The schema itself: every row can be what it says.
#include <gmock/gmock.h>

#include <set>

#include "accelerate/errors.h"
#include "base/nearest_name.h"
#include "config/schema.h"
#include "config/value.h"
#include "launch/plan/launch_plan.h"

namespace accelerate::config {
namespace {

using ::testing::HasSubstr;

TEST(Schema, NamesFlagsKeysAndVariablesAreEachTakenOnce) {
  std::set<std::string> names, flags, keys, variables;
  for (const Setting* setting : all_settings()) {
    EXPECT_TRUE(names.emplace(setting->name).second) << setting->name;
    if (!setting->file_key.empty()) {
      EXPECT_TRUE(keys.emplace(setting->file_key).second) << setting->name;
    }
    if (const std::string variable = variable_of(*setting); !variable.empty()) {
      EXPECT_TRUE(variables.insert(variable).second) << variable;
    }
    if (!setting->has_flag) continue;
    EXPECT_TRUE(flags.insert(flag_of(*setting)).second) << setting->name;
    for (const auto flag : {setting->short_flag, setting->negative_flag}) {
      if (!flag.empty()) {
        EXPECT_TRUE(flags.emplace(flag).second) << setting->name;
      }
    }
  }
}

TEST(Schema, EveryRowHasHelpAndAPresetThatItTakesItself) {
  for (const Setting* setting : all_settings()) {
    EXPECT_FALSE(setting->help.empty()) << setting->name;
    EXPECT_EQ(setting->kind == Kind::kChoice, !setting->choices.empty()) << setting->name;
    if (setting->preset) {
      EXPECT_EQ(checked_value(*setting, *setting->preset, {}), *setting->preset) << setting->name;
    }
    if (setting->kind == Kind::kSwitch) {
      EXPECT_EQ(setting->preset, "false") << setting->name;
    }
  }
}

TEST(Schema, WhatCountsWhereNobodyGivesAValueIsAValueAndNoPartOfTheHelp) {
  for (const Setting* setting : all_settings()) {
    EXPECT_EQ(setting->help.find_first_of("[]\n"), std::string_view::npos) << setting->name;
    EXPECT_FALSE(setting->preset && setting->fallback) << setting->name;
    EXPECT_FALSE((setting->preset || setting->fallback) && !setting->decided.empty())
        << setting->name;
    if (setting->fallback) {
      EXPECT_NO_THROW(checked_value(*setting, *setting->fallback, {})) << setting->name;
    }
  }
  EXPECT_EQ(default_of(*find_setting("collective_timeout")), "1800");
  EXPECT_EQ(default_of(*find_setting("mixed_precision")), "no");
  EXPECT_EQ(default_of(*find_setting("run_id")), "generated");
  EXPECT_EQ(default_of(*find_setting("log_dir")), "");
}

TEST(Schema, WhatIsPassedToWorkersHasAVariable) {
  for (const Setting* setting : all_settings()) {
    if (setting->passed != Passed::kNever) {
      EXPECT_NE(variable_of(*setting), "") << setting->name;
    }
    if (setting->effect == Effect::kForwarded) {
      EXPECT_NE(setting->passed, Passed::kNever) << setting->name;
    }
  }
}

TEST(Schema, FlagsAreFoundInBothSpellings) {
  const Setting* setting = find_setting("num_processes");
  ASSERT_NE(setting, nullptr);
  EXPECT_EQ(find_flag("--num_processes"), setting);
  EXPECT_EQ(find_flag("--num-processes"), setting);
  EXPECT_EQ(find_flag("--num-processe"), nullptr);
  EXPECT_EQ(find_flag("-m"), find_setting("module"));
  EXPECT_TRUE(is_negative_flag(*find_flag("--no-tpu-cluster"), "--no-tpu-cluster"));
  EXPECT_FALSE(is_negative_flag(*find_flag("--tpu_cluster"), "--tpu_cluster"));
}

TEST(Schema, KeysOfSomeMapsMayLeaveTheirPrefixOut) {
  const Setting* version = find_setting("fsdp_version");
  EXPECT_EQ(find_file_key("fsdp_config", "fsdp_version", false), version);
  EXPECT_EQ(find_file_key("fsdp_config", "version", false), version);
  EXPECT_EQ(find_file_key("dynamo_config", "backend", false), find_setting("dynamo_backend"));
  EXPECT_EQ(find_file_key("", "version", false), nullptr);
  EXPECT_EQ(find_file_key("deepspeed_config", "stage", false), nullptr);
}

TEST(Schema, KeysOfSagemakerFilesAreKnownInThoseAlone) {
  EXPECT_EQ(find_file_key("", "region", false), nullptr);
  EXPECT_NE(find_file_key("", "region", true), nullptr);
  EXPECT_EQ(find_file_key("", "num_processes", true), nullptr);
}

std::string value_refusal(const char* name, const std::string& text, const Source& source) {
  try {
    checked_value(*find_setting(name), text, source);
  } catch (const ConfigError& error) {
    return error.message() + " | " + error.where() + " | " + error.hint();
  }
  return "taken";
}

TEST(Values, WordsForYesAndNoBecomeTrueAndFalse) {
  const Setting& setting = *find_setting("fsdp_offload_params");
  EXPECT_EQ(checked_value(setting, "Yes", {}), "true");
  EXPECT_EQ(checked_value(setting, "0", {}), "false");
  EXPECT_EQ(
      value_refusal("fsdp_offload_params", "2", {ValueSource::kFlag, "--fsdp-offload-params"}),
      "fsdp_offload_params cannot be '2': it must be true or false | --fsdp-offload-params | ");
}

TEST(Values, RefusalsNameThePlaceTheLimitsAndTheNearestName) {
  EXPECT_EQ(
      value_refusal("num_processes", "0", {ValueSource::kVariable, "ACCELERATE_NUM_PROCESSES"}),
      "num_processes cannot be '0': it must be a whole number from 1 to 4096 | environment "
      "variable ACCELERATE_NUM_PROCESSES | ");
  EXPECT_EQ(value_refusal("num_processes", "2x", {ValueSource::kFile, "a.yaml:3"}),
            "num_processes cannot be '2x': it must be a whole number from 1 to 4096 | a.yaml:3 | ");
  EXPECT_EQ(
      value_refusal("mixed_precision", "bf61", {ValueSource::kFlag, "--mixed_precision"}),
      "mixed_precision cannot be 'bf61': it must be no, fp16 or bf16 (fp8 is not part of this "
      "build) | --mixed_precision | bf16?");
  EXPECT_EQ(value_refusal("fsdp_auto_wrap_policy", "size_based_wrp", {}),
            "fsdp_auto_wrap_policy cannot be 'size_based_wrp': it must be TRANSFORMER_BASED_WRAP, "
            "SIZE_BASED_WRAP or NO_WRAP |  | SIZE_BASED_WRAP?");
  EXPECT_THAT(value_refusal("grace_period", "nan", {}),
              HasSubstr("a number of seconds from 0 to 86400"));
  EXPECT_THAT(value_refusal("grace_period", "1e400", {}),
              HasSubstr("a number of seconds from 0 to 86400"));
  EXPECT_THAT(value_refusal("gradient_accumulation_steps", "", {}),
              HasSubstr("a whole number not below 1, or auto"));
}

TEST(Values, ATimeWithAUnitIsRefusedWithTheSecondsThatItIs) {
  const auto hint_on = [](const char* name, const std::string& text) {
    const std::string refusal = value_refusal(name, text, {});
    return refusal.substr(refusal.rfind("| ") + 2);
  };
  EXPECT_EQ(hint_on("collective_timeout", "10min"), "600, which is 10min");
  EXPECT_EQ(hint_on("collective_timeout", "1.5 hrs"), "5400, which is 1.5 hrs");
  EXPECT_EQ(hint_on("collective_timeout", "2 days"), "172800, which is 2 days");
  EXPECT_EQ(hint_on("grace_period", "2 days"), "");  // more than it may be
  EXPECT_EQ(hint_on("monitor_interval", "0ms"), "");
  EXPECT_EQ(hint_on("collective_timeout", "soon"), "");
  EXPECT_EQ(hint_on("num_processes", "2s"), "");
}

TEST(Schema, DefaultsAreThoseOfTheLauncher) {
  const launch::LaunchPlan plan;
  const auto seconds = [](std::chrono::milliseconds time) {
    return std::chrono::duration<double>(time).count();
  };
  EXPECT_EQ(decimal_number(*find_setting("monitor_interval")->preset),
            seconds(plan.monitor_interval));
  EXPECT_EQ(find_setting("grace_period")->decided,
            std::to_string(plan.failure_grace / std::chrono::seconds(1)) + " after a failure, " +
                std::to_string(plan.signal_grace / std::chrono::seconds(1)) +
                " after a signal to the launcher");
  EXPECT_EQ(whole_number(*find_setting("num_machines")->fallback), plan.num_machines);
  EXPECT_EQ(whole_number(*find_setting("machine_rank")->fallback), plan.machine_rank);
}

TEST(Values, ChoicesAreTakenInAnyCaseAndSpelledAsTheSchemaDoes) {
  EXPECT_EQ(checked_value(*find_setting("dynamo_backend"), "INDUCTOR", {}), "inductor");
  EXPECT_EQ(checked_value(*find_setting("distributed_type"), "multi_gpu", {}), "MULTI_GPU");
  EXPECT_EQ(spelled_value(*find_setting("dynamo_backend"), "inductor"), "INDUCTOR");
  EXPECT_EQ(spelled_value(*find_setting("mixed_precision"), "BF16"), "bf16");
  EXPECT_EQ(checked_value(*find_setting("fp8_backend"), "TE", {}), "TE");
}

TEST(Values, WholeNumbersOfFloatsAreWrittenAsPythonDoes) {
  EXPECT_EQ(checked_value(*find_setting("gradient_clipping"), "1", {}), "1.0");
  EXPECT_EQ(checked_value(*find_setting("gradient_clipping"), "0.5", {}), "0.5");
  EXPECT_EQ(checked_value(*find_setting("gradient_clipping"), "auto", {}), "auto");
}

TEST(Values, ListsOfTruthsHaveThree) {
  const Setting& setting = *find_setting("fp8_override_linear_precision");
  EXPECT_EQ(checked_value(setting, "true, False,1", {}), "true,false,true");
  EXPECT_EQ(checked_value(setting, "no", {}), "false,false,false");
  EXPECT_THAT(value_refusal("fp8_override_linear_precision", "true,false", {}),
              HasSubstr("three of"));
}

TEST(Values, NearestNamesAreNoFarFetchedOnes) {
  EXPECT_EQ(nearest_name("--num_procesess", long_flags()), "--num_processes");
  EXPECT_EQ(nearest_name("--frobnicate", long_flags()), "");
}

}  // namespace
}  // namespace accelerate::config
