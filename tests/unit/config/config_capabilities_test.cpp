// What this build cannot do is refused where workers would start, by the name of who asked.
#include <gmock/gmock.h>

#include <map>

#include "accelerate/errors.h"
#include "cli/reports/estimate_report.h"
#include "config/capabilities.h"
#include "config/config_file.h"
#include "config/schema.h"
#include "config/settings.h"
#include "config/sharding_check.h"

namespace accelerate::config {
namespace {

struct Wish {
  std::vector<std::pair<std::string, std::string>> flags{};
  std::map<std::string, std::string> variables{};
  std::string file{};
};

Settings wished(const Wish& wish) {
  SettingsInput input;
  for (const auto& [flag, text] : wish.flags) {
    input.flags.push_back({find_flag(flag), text, flag});
  }
  input.variable = [&](const std::string& name) -> std::optional<std::string> {
    const auto found = wish.variables.find(name);
    return found == wish.variables.end() ? std::nullopt : std::optional(found->second);
  };
  std::optional<ConfigFile> file;
  if (!wish.file.empty()) {
    file = interpret_config(parse_config_text(wish.file, "c.yaml"), "c.yaml");
    input.file = &*file;
  }
  return resolve_settings(input);
}

std::string answer_to(const Wish& wish, WorkerKind workers = WorkerKind::kNative,
                      std::span<const CapabilityRow> rows = kCapabilities) {
  const Settings settings = wished(wish);  // reading it is no reason to refuse it
  try {
    refuse_missing_capability(settings, workers, rows);
  } catch (const ConfigError& error) {
    return error.message() + " | " + error.where();
  }
  return "runs";
}

std::string file_of(const std::string& type) {
  return "num_processes: 2\ndistributed_type: " + type + "\n";
}

TEST(Capabilities, WhatIsMissingIsRefusedByTheNameOfWhoAsked) {
  EXPECT_EQ(answer_to({.flags = {{"--use_megatron_lm", "true"}}}),
            "Megatron-LM is not part of this build | --use_megatron_lm");
  EXPECT_EQ(answer_to({.file = file_of("MEGATRON_LM")}),
            "Megatron-LM is not part of this build | c.yaml:2");
  EXPECT_EQ(answer_to({.variables = {{"ACCELERATE_USE_MEGATRON_LM", "true"}}}),
            "Megatron-LM is not part of this build | environment variable "
            "ACCELERATE_USE_MEGATRON_LM");
  EXPECT_EQ(answer_to({.flags = {{"--tpu", "true"}}}),
            "training on TPUs is not part of this build | --tpu");
  EXPECT_EQ(answer_to({.file = file_of("XLA")}),
            "training on TPUs is not part of this build | c.yaml:2");
  EXPECT_EQ(answer_to({.file = "distributed_type: 'NO'\nmixed_precision: FP8\n"}),
            "fp8 is not part of this build | c.yaml:2");
  EXPECT_EQ(answer_to({.variables = {{"ACCELERATE_MIXED_PRECISION", "fp8"}}}),
            "fp8 is not part of this build | environment variable ACCELERATE_MIXED_PRECISION");
  EXPECT_EQ(answer_to({.file = file_of("MULTI_NPU")}),
            "distributed_type MULTI_NPU is not part of this build | c.yaml:2");
  for (const char* type : {"DATA_PARALLEL", "MODEL_PARALLEL"}) {
    EXPECT_EQ(answer_to({.file = file_of(type)}),
              std::string("distributed_type ") + type + " is not part of this build | c.yaml:2");
    EXPECT_EQ(answer_to({.file = file_of(type) + "use_cpu: true\n"}),
              std::string("distributed_type ") + type + " is not part of this build | c.yaml:2");
    EXPECT_EQ(answer_to({.flags = {{"--cpu", "true"}}, .file = file_of(type)}), "runs");
  }
}

TEST(Capabilities, WhatThisBuildDoesRuns) {
  EXPECT_EQ(answer_to({}), "runs");
  for (const char* type : {"'NO'", "MULTI_CPU", "MULTI_GPU", "FSDP", "DEEPSPEED"}) {
    EXPECT_EQ(answer_to({.file = file_of(type) + "mixed_precision: bf16\n"}), "runs") << type;
  }
}

TEST(Capabilities, AFileThatAFlagOverrulesAsksForNothing) {
  for (const char* type : {"MEGATRON_LM", "XLA", "MULTI_NPU"}) {
    EXPECT_EQ(answer_to({.flags = {{"--cpu", "true"}}, .file = file_of(type)}), "runs") << type;
  }
  EXPECT_EQ(answer_to({.flags = {{"--mixed_precision", "no"}},
                       .file = "distributed_type: 'NO'\nmixed_precision: fp8\n"}),
            "runs");
}

TEST(Capabilities, PythonIsToldOfWhatItsLibraryDoes) {
  EXPECT_EQ(answer_to({.file = file_of("MEGATRON_LM")}, WorkerKind::kPython), "runs");
  EXPECT_EQ(answer_to({.flags = {{"--mixed_precision", "fp8"}}}, WorkerKind::kPython), "runs");
  // Workers on TPUs are started in another way, which this launcher does not know.
  EXPECT_EQ(answer_to({.file = file_of("XLA")}, WorkerKind::kPython),
            "training on TPUs is not part of this build | c.yaml:2");
}

TEST(Capabilities, OneRowIsAllThatIsToBeFlipped) {
  auto rows = kCapabilities;
  for (CapabilityRow& row : rows) {
    row.is_in_this_build = row.capability == Capability::kFsdp;
  }
  EXPECT_TRUE(is_in_this_build(Capability::kFsdp, rows));
  EXPECT_EQ(answer_to({.file = file_of("FSDP")}, WorkerKind::kNative, rows), "runs");
  EXPECT_EQ(answer_to({.file = file_of("DEEPSPEED")}, WorkerKind::kNative, rows),
            "DeepSpeed is not part of this build | c.yaml:2");
}

TEST(Capabilities, FilesFromBeforeXlaAskForTpus) {
  EXPECT_EQ(answer_to({.file = file_of("TPU")}),
            "training on TPUs (distributed_type TPU, which is called XLA since version 0.27 of the "
            "Python library) is not part of this build | c.yaml:2");
  EXPECT_EQ(answer_to({.flags = {{"--cpu", "true"}}, .file = file_of("TPU")}), "runs");
}

TEST(Capabilities, TypesCountInAnyCase) {
  EXPECT_EQ(answer_to({.file = file_of("megatron_lm")}),
            "Megatron-LM is not part of this build | c.yaml:2");
  EXPECT_EQ(answer_to({.file = file_of("multi_cpu")}), "runs");
}

std::string inherited(const std::string& name, const std::string& text,
                      std::span<const CapabilityRow> rows = kCapabilities, const Wish& wish = {},
                      WorkerKind workers = WorkerKind::kNative) {
  try {
    refuse_inherited_variables(
        [&](const char* asked) { return asked == name ? std::optional(text) : std::nullopt; },
        wished(wish), workers, rows);
  } catch (const ConfigError& error) {
    return error.message() + " | " + error.where() + " | " + error.hint();
  }
  return "runs";
}

TEST(Capabilities, VariablesThatNoSettingHasAreRefusedToo) {
  const auto refused = [](const std::string& name) {
    return "training on TPUs is not part of this build | environment variable " + name +
           " | unset it, to train on CPUs or NVIDIA GPUs";
  };
  EXPECT_EQ(inherited("PJRT_DEVICE", "TPU"), refused("PJRT_DEVICE"));
  EXPECT_EQ(inherited("PJRT_DEVICE", "CPU"), "runs");
  for (const char* name : {"ACCELERATE_IN_TPU_POD", "ACCELERATE_USE_TPU", "ACCELERATE_TPU"}) {
    EXPECT_EQ(inherited(name, "1"), refused(name));
    EXPECT_EQ(inherited(name, "false"), "runs") << name;
  }
  EXPECT_EQ(inherited("ACCELERATE_SAGEMAKER_DISTRIBUTED_TYPE", "NO"), "runs");
  EXPECT_NE(inherited("ACCELERATE_SAGEMAKER_DISTRIBUTED_TYPE", "DATA_PARALLEL"), "runs");
  // A flag may overrule the variable of a setting: it is asked for among the settings.
  EXPECT_EQ(inherited("ACCELERATE_USE_MEGATRON_LM", "true"), "runs");
  auto rows = kCapabilities;
  for (CapabilityRow& row : rows) row.is_in_this_build = row.capability == Capability::kTpu;
  EXPECT_EQ(inherited("PJRT_DEVICE", "TPU", rows), "runs");
}

TEST(Capabilities, VariablesOfTpusAreRefusedForPythonTooAndTheCpuOverrulesThem) {
  const auto in_python = [](const std::string& name, const std::string& text) {
    return inherited(name, text, kCapabilities, {}, WorkerKind::kPython);
  };
  EXPECT_NE(in_python("PJRT_DEVICE", "TPU"), "runs");
  EXPECT_EQ(in_python("ACCELERATE_SAGEMAKER_DISTRIBUTED_TYPE", "data_parallel"), "runs");
  const Wish cpu = {.flags = {{"--cpu", "true"}}};
  EXPECT_EQ(inherited("PJRT_DEVICE", "TPU", kCapabilities, cpu), "runs");
  EXPECT_NE(inherited("ACCELERATE_SAGEMAKER_DISTRIBUTED_TYPE", "data_parallel", kCapabilities, cpu),
            "runs");
}

TEST(Capabilities, PythonsWorkersOnTpusAreNotStartedByABuildThatHasThem) {
  auto rows = kCapabilities;
  for (CapabilityRow& row : rows) row.is_in_this_build = row.capability == Capability::kTpu;
  EXPECT_EQ(answer_to({.flags = {{"--tpu", "true"}}}, WorkerKind::kNative, rows), "runs");
  EXPECT_EQ(answer_to({.flags = {{"--tpu", "true"}}}, WorkerKind::kPython, rows),
            "training on TPUs is for native programs here | --tpu");
}

TEST(Capabilities, AVariableThatIsNeitherYesNorNoIsRefusedBeforeWorkersReadIt) {
  EXPECT_EQ(inherited("ACCELERATE_USE_TPU", "maybe"),
            "ACCELERATE_USE_TPU='maybe' is neither yes nor no | environment variable "
            "ACCELERATE_USE_TPU | use true or false");
}

TEST(Capabilities, GroupsAndChoicesAreMarkedUntilTheirRowIsFlipped) {
  EXPECT_NE(missing_for(Group::kMegatron), nullptr);
  EXPECT_EQ(missing_for(Group::kFsdp), nullptr);
  EXPECT_EQ(missing_for(Group::kMachines), nullptr);
  EXPECT_EQ(missing_for(Group::kDynamo), nullptr);
  const Setting& precision = *find_setting("mixed_precision");
  EXPECT_NE(missing_for(precision, "fp8"), nullptr);
  EXPECT_EQ(missing_for(precision, "bf16"), nullptr);
  auto rows = kCapabilities;
  for (CapabilityRow& row : rows) row.is_in_this_build = true;
  EXPECT_EQ(missing_for(Group::kMegatron, rows), nullptr);
  EXPECT_EQ(missing_for(precision, "fp8", rows), nullptr);
}

TEST(Capabilities, EachWayOfSharingMemoryAsksForItsOwn) {
  using estimate::Sharding;
  const auto runnable = [](std::optional<Capability> present) {
    auto rows = kCapabilities;
    for (CapabilityRow& row : rows) row.is_in_this_build = row.capability == present;
    std::vector<bool> answers;
    for (const Sharding sharding : estimate::all_shardings()) {
      answers.push_back(cli::is_runnable_strategy(sharding, rows));
    }
    return answers;
  };
  EXPECT_EQ(runnable(std::nullopt), (std::vector{true, false, false, false}));
  EXPECT_EQ(runnable(Capability::kFsdp), (std::vector{true, false, true, true}));
  EXPECT_EQ(runnable(Capability::kDeepspeed), (std::vector{true, true, true, true}));
}

// What the launcher finds before workers start.
std::string sharding_of(const Wish& wish) {
  const Settings settings = wished(wish);
  try {
    const auto request = requested_sharding(settings);
    return request ? "stage " + std::to_string(request->stage.value) : "not sharded";
  } catch (const ConfigError& error) {
    return error.message() + " | " + error.where();
  }
}

TEST(RequestedSharding, IsThatOfTheSettings) {
  EXPECT_EQ(sharding_of({}), "not sharded");
  EXPECT_EQ(sharding_of({.flags = {{"--use_deepspeed", "true"}}}), "stage 2");
  EXPECT_EQ(sharding_of({.flags = {{"--use_deepspeed", "true"}, {"--zero_stage", "3"}}}),
            "stage 3");
  EXPECT_EQ(sharding_of({.flags = {{"--zero_stage", "3"}}}), "not sharded");
  EXPECT_EQ(sharding_of({.file = file_of("FSDP")}), "stage 3");
  EXPECT_EQ(sharding_of({.flags = {{"--cpu", "true"}}, .file = file_of("FSDP")}), "stage 3");
  EXPECT_EQ(sharding_of({.flags = {{"--cpu", "true"}, {"--use_deepspeed", "true"}}}), "stage 2");
}

TEST(RequestedSharding, IsRefusedByTheFlagTheLineOrTheKeyThatAskedForIt) {
  EXPECT_EQ(sharding_of({.flags = {{"--use_fsdp", "true"}, {"--fsdp_offload_params", "true"}}}),
            "parameters in host memory are not part of this build | --fsdp_offload_params");
  EXPECT_EQ(sharding_of({.file = file_of("DEEPSPEED") +
                                 "deepspeed_config: {offload_optimizer_device: cpu}\n"}),
            "offload_optimizer to cpu is not part of this build | c.yaml:3");
  const std::string json =
      R"({"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}})";
  EXPECT_THAT(
      sharding_of({.flags = {{"--use_deepspeed", "true"}, {"--deepspeed_config_file", json}}}),
      testing::AllOf(testing::HasSubstr("offload_param to cpu is not part of this build"),
                     testing::HasSubstr("zero_optimization.offload_param.device")));
  EXPECT_THAT(
      sharding_of(
          {.flags = {{"--use_deepspeed", "true"},
                     {"--mixed_precision", "bf16"},
                     {"--deepspeed_config_file",
                      R"({"zero_optimization": {"stage": 1}, "fp16": {"enabled": true}})"}}}),
      testing::HasSubstr("mixed_precision is bf16, but fp16.enabled is true"));
}

TEST(Capabilities, EveryRowNamesASettingThatThereIsAndTheVariableOfThatSetting) {
  for (const CapabilityRow& row : kCapabilities) {
    // Parts of sharding, which requested_sharding() refuses.
    const bool is_part =
        row.capability == Capability::kOffload || row.capability == Capability::kRecomputation;
    if (is_part) continue;
    if (row.setting.empty()) {
      EXPECT_FALSE(row.variable.empty()) << row.name;
      continue;
    }
    const Setting* setting = find_setting(row.setting);
    ASSERT_NE(setting, nullptr) << row.setting;
    if (!variable_of(*setting).empty()) {
      EXPECT_EQ(variable_of(*setting), row.variable);
    }
  }
}

}  // namespace
}  // namespace accelerate::config
