// Who decides a setting, and what settings demand of each other.
#include <gmock/gmock.h>

#include <map>

#include "accelerate/errors.h"
#include "config/schema.h"
#include "config/settings.h"
#include "config/variable_names.h"
#include "config/worker_variables.h"

namespace accelerate::config {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

struct Given {
  std::vector<std::pair<std::string, std::string>> flags{};
  std::map<std::string, std::string> variables{};
  std::string file{};
  int gpus = 0;
};

Settings resolved(const Given& given) {
  SettingsInput input{.gpus = given.gpus};
  for (const auto& [flag, text] : given.flags) {
    input.flags.push_back({find_flag(flag), text, flag});
  }
  input.variable = [&](const std::string& name) -> std::optional<std::string> {
    const auto found = given.variables.find(name);
    return found == given.variables.end() ? std::nullopt : std::optional(found->second);
  };
  std::optional<ConfigFile> file;
  if (!given.file.empty()) {
    file = interpret_config(parse_config_text(given.file, "c.yaml"), "c.yaml");
    input.file = &*file;
  }
  return resolve_settings(input);
}

std::string refusal(const Given& given) {
  try {
    resolved(given);
  } catch (const ConfigError& error) {
    return error.message() + " | " + error.where();
  }
  return "taken";
}

TEST(Settings, AFlagCountsBeforeAVariableThatBeforeTheFileThatBeforeThePreset) {
  Given given;
  const auto expect = [&](const std::string& text, ValueSource kind, const std::string& where) {
    const SettingValue value = resolved(given)["mixed_precision"];
    EXPECT_EQ(value.text, text);
    EXPECT_EQ(value.source.kind, kind);
    EXPECT_EQ(value.source.where, where);
  };
  expect("no", ValueSource::kPreset, "");
  given.file = "distributed_type: 'NO'\nmixed_precision: fp16\n";
  expect("fp16", ValueSource::kFile, "c.yaml:2");
  given.variables = {{"ACCELERATE_MIXED_PRECISION", "bf16"}};
  expect("bf16", ValueSource::kVariable, "ACCELERATE_MIXED_PRECISION");
  given.flags = {{"--mixed-precision", "fp8"}, {"--mixed_precision", "no"}};
  expect("no", ValueSource::kFlag, "--mixed_precision");
}

TEST(Settings, EmptyVariablesSayNothing) {
  EXPECT_FALSE(resolved({.variables = {{"ACCELERATE_USE_CPU", ""}}})["cpu"].is_given());
}

TEST(Settings, WrongVariablesAreNamed) {
  EXPECT_EQ(refusal({.variables = {{"ACCELERATE_USE_CPU", "perhaps"}}}),
            "cpu cannot be 'perhaps': it must be true or false | environment variable "
            "ACCELERATE_USE_CPU");
}

TEST(Settings, AProcessForEachGpuUnlessOnTheCpu) {
  EXPECT_EQ(resolved({.gpus = 3}).integer("num_processes"), 3);
  EXPECT_EQ(resolved({.gpus = 0}).integer("num_processes"), 1);
  EXPECT_EQ(resolved({.flags = {{"--cpu", "true"}}, .gpus = 3}).integer("num_processes"), 1);
  EXPECT_EQ(resolved({.flags = {{"--gpu_ids", "0,2"}}, .gpus = 3}).integer("num_processes"), 2);
  EXPECT_EQ(resolved({.gpus = 3})["num_processes"].source.kind, ValueSource::kDetected);
}

TEST(Settings, TheFilesWayOfDistributingYieldsToAFlag) {
  const std::string file = "distributed_type: FSDP\nnum_processes: 2\n";
  EXPECT_TRUE(resolved({.file = file}).is_on("use_fsdp"));
  EXPECT_EQ(resolved({.file = file})["use_fsdp"].source.where, "c.yaml:1");
  const Settings deepspeed = resolved({.flags = {{"--use_deepspeed", "true"}}, .file = file});
  EXPECT_TRUE(deepspeed.is_on("use_deepspeed"));
  EXPECT_FALSE(deepspeed.is_on("use_fsdp"));
  EXPECT_FALSE(resolved({.flags = {{"--multi_gpu", "true"}}, .file = file}).is_on("use_fsdp"));
  // Shards are for CPUs too.
  const Settings on_cpus = resolved({.flags = {{"--cpu", "true"}}, .file = file});
  EXPECT_TRUE(on_cpus.is_on("use_fsdp") && on_cpus.is_on("cpu"));
}

TEST(Settings, AFlagOrVariableOfAWayOfDistributingCountsBeforeTheFile) {
  struct Way {
    const char* type;
    const char* setting;
  };
  for (const Way& way :
       {Way{"MULTI_CPU", "cpu"}, Way{"MULTI_GPU", "multi_gpu"}, Way{"MULTI_XPU", "multi_gpu"},
        Way{"XLA", "tpu"}, Way{"DEEPSPEED", "use_deepspeed"}, Way{"FSDP", "use_fsdp"},
        Way{"MEGATRON_LM", "use_megatron_lm"}}) {
    const Setting& setting = *find_setting(way.setting);
    const std::string file = std::string("distributed_type: ") + way.type + "\nnum_processes: 2\n";
    EXPECT_TRUE(resolved({.file = file}).is_on(way.setting)) << way.type;
    for (const std::string text : {"true", "false"}) {
      const Settings flag = resolved({.flags = {{flag_of(setting), text}}, .file = file});
      EXPECT_EQ(flag.text(way.setting), text) << way.type;
      EXPECT_EQ(flag[way.setting].source.kind, ValueSource::kFlag) << way.type;
      if (variable_of(setting).empty()) continue;
      const Settings variable =
          resolved({.variables = {{variable_of(setting), text}}, .file = file});
      EXPECT_EQ(variable.text(way.setting), text) << way.type;
      EXPECT_EQ(variable[way.setting].source.kind, ValueSource::kVariable) << way.type;
    }
  }
}

TEST(Settings, WhatIsDetectedHereIsTakenForEveryMachine) {
  const Settings two = resolved({.flags = {{"--num_machines", "2"}}, .gpus = 3});
  EXPECT_EQ(two.integer("num_processes"), 6);
  EXPECT_EQ(two["num_processes"].source.where, "one for each visible GPU, on each of 2 machines");
  EXPECT_EQ(resolved({.flags = {{"--num_machines", "3"}}}).integer("num_processes"), 3);
}

TEST(Settings, NumbersAreCheckedToTheirLastSign) {
  EXPECT_EQ(refusal({.flags = {{"--max_restarts", "+-0"}}}),
            "max_restarts cannot be '+-0': it must be a whole number from 0 to 1000000 | "
            "--max_restarts");
  for (const char* wrong : {"+", "++1", "-+1", "1+", "", "99999999999999999999"}) {
    EXPECT_NE(refusal({.flags = {{"--max_restarts", wrong}}}), "taken") << wrong;
  }
  for (const char* wrong : {"+-1", "+", "nan", "inf", "1e999"}) {
    EXPECT_NE(refusal({.flags = {{"--monitor_interval", wrong}}}), "taken") << wrong;
  }
  const Settings settings =
      resolved({.flags = {{"--num_processes", "+02"}, {"--grace_period", "+1.5"}}});
  EXPECT_EQ(settings.text("num_processes"), "2");
  EXPECT_EQ(settings.text("grace_period"), "1.5");
  EXPECT_EQ(resolved({.flags = {{"--gradient_accumulation_steps", "auto"}}})
                .integer("gradient_accumulation_steps"),
            std::nullopt);
}

TEST(Settings, ProcessesOnCpusAreOnTheCpu) {
  EXPECT_TRUE(resolved({.file = "distributed_type: MULTI_CPU\nnum_processes: 2\n"}).is_on("cpu"));
}

TEST(Settings, AFileMayLeaveTheProcessesToTheCommandLine) {
  const std::string file = "distributed_type: MULTI_GPU\nnum_processes: -1\n";
  EXPECT_EQ(refusal({.file = file}),
            "the file leaves num_processes to the command line | c.yaml:2");
  EXPECT_EQ(resolved({.flags = {{"--num_processes", "4"}}, .file = file}).integer("num_processes"),
            4);
}

TEST(Settings, ContradictionsAreRefused) {
  EXPECT_EQ(refusal({.flags = {{"--module", "true"}, {"--no_python", "true"}}}),
            "--module and --no_python cannot be used together | --no_python");
  EXPECT_EQ(refusal({.flags = {{"--cpu", "true"}, {"--multi_gpu", "true"}}}),
            "cpu and multi_gpu cannot be used together | --multi_gpu");
  EXPECT_EQ(refusal({.flags = {{"--use_deepspeed", "true"}, {"--use_fsdp", "true"}}}),
            "use_deepspeed and use_fsdp cannot be used together | --use_fsdp");
  EXPECT_EQ(refusal({.flags = {{"--cpu", "true"}, {"--use_fsdp", "true"}}}), "taken");
  EXPECT_EQ(refusal({.flags = {{"--multi_gpu", "true"}, {"--num_processes", "1"}}}),
            "--multi_gpu needs at least 2 processes | --num_processes");
  EXPECT_EQ(refusal({.flags = {{"--num_machines", "2"}, {"--num_processes", "3"}}}),
            "3 processes cannot be shared evenly by 2 machines | --num_processes");
  EXPECT_EQ(refusal({.flags = {{"--machine_rank", "1"}}}),
            "machine_rank is 1, but there are 1 machines, counted from 0 | --machine_rank");
  EXPECT_EQ(refusal({.flags = {{"--gpu_ids", "0;1"}}}), "gpu_ids cannot be '0;1' | --gpu_ids");
  EXPECT_EQ(
      refusal({.flags = {{"--gpu_ids", "1"}, {"--multi_gpu", "true"}, {"--num_processes", "2"}}}),
      "only one GPU is named for training on several | --gpu_ids");
  EXPECT_EQ(refusal({.flags = {{"--use_fsdp", "true"}, {"--fsdp_sync_module_states", "false"}}}),
            "fsdp_cpu_ram_efficient_loading needs fsdp_sync_module_states: the other ranks get "
            "their weights from rank 0 | --fsdp_sync_module_states");
}

TEST(Settings, AMeshNeedsTheSecondFsdp) {
  EXPECT_NE(refusal({.flags = {{"--use_parallelism_config", "true"}}}), "taken");
  EXPECT_EQ(refusal({.flags = {{"--use_parallelism_config", "true"},
                               {"--use_fsdp", "true"},
                               {"--fsdp_version", "2"}}}),
            "taken");
  EXPECT_EQ(refusal({.file = "distributed_type: FSDP\nfsdp_config: {fsdp_version: 2}\n"
                             "parallelism_config: {parallelism_config_tp_size: 2}\n"}),
            "taken");
}

TEST(Settings, WhatHasNoEffectIsNamedByWhoGaveIt) {
  const Settings settings = resolved(
      {.flags = {{"--tpu_use_sudo", "true"}, {"--dynamo-backend", "inductor"}},
       .variables = {{"FSDP_VERSION", "2"}},
       .file =
           "distributed_type: 'NO'\ntpu_name: pod\ndowncast_bf16: 'no'\nrdzv_backend: static\n"});
  EXPECT_THAT(settings_of_effect(settings, Effect::kNone),
              UnorderedElementsAre("--tpu_use_sudo", "tpu_name (c.yaml:2)",
                                   "fsdp_version (FSDP_VERSION), without --use_fsdp"));
  EXPECT_THAT(settings_of_effect(settings, Effect::kForwarded), ElementsAre("--dynamo_backend"));
  const Settings sharded = resolved({.flags = {{"--use_fsdp", "true"},
                                               {"--fsdp_version", "2"},
                                               {"--zero_stage", "1"},
                                               {"--fsdp_use_orig_params", "false"},
                                               {"--gradient_clipping", "1"}}});
  EXPECT_THAT(settings_of_effect(sharded, Effect::kNone),
              ElementsAre("--zero_stage, without --use_deepspeed"));
  EXPECT_THAT(settings_of_effect(sharded, Effect::kForwarded),
              UnorderedElementsAre("--gradient_clipping", "--fsdp_use_orig_params"));
  EXPECT_THAT(settings_of_effect(resolved({}), Effect::kNone), IsEmpty());
}

TEST(Settings, DeepspeedIsToldWhichOfItsFieldsTheFileSays) {
  const Settings settings =
      resolved({.file = "distributed_type: DEEPSPEED\nnum_processes: 2\nmixed_precision: bf16\n"
                        "deepspeed_config: {zero_stage: 3, gradient_clipping: 1.0}\n"});
  std::map<std::string, std::string> told;
  for (const auto& [name, value] : worker_variables(settings)) told[name] = value;
  EXPECT_EQ(told["ACCELERATE_CONFIG_DS_FIELDS"], "zero_stage,gradient_clipping,mixed_precision");
  EXPECT_EQ(told.count("ACCELERATE_DYNAMO_BACKEND"), 0u);
}

TEST(Settings, TruthsReachWorkersInTheWordsOfPythonsLauncher) {
  const auto told = [](const Given& given, const char* name) {
    for (const auto& [variable, value] : worker_variables(resolved(given))) {
      if (variable == name) return value;
    }
    return std::string();
  };
  const std::string file =
      "distributed_type: MEGATRON_LM\nnum_processes: 2\nmixed_precision: fp8\n"
      "enable_cpu_affinity: true\nfp8_config: {pad_inner_dim: false}\n"
      "megatron_lm_config: {megatron_lm_recompute_activations: true}\n";
  EXPECT_EQ(told({.file = file}, "ACCELERATE_CPU_AFFINITY"), "1");
  EXPECT_EQ(told({.file = file}, "ACCELERATE_FP8_PAD_INNER_DIM"), "False");
  EXPECT_EQ(told({.file = file}, "ACCELERATE_FP8_OVERRIDE_DGRAD"), "False");
  EXPECT_EQ(told({.file = file}, "MEGATRON_LM_RECOMPUTE_ACTIVATIONS"), "True");
  const Given flags{.flags = {{"--fp8_override_linear_precision", "no,yes,no"},
                              {"--megatron_lm_recompute_activations", "yes"},
                              {"--fp8_pad_inner_dim", "false"}},
                    .file = file};
  EXPECT_EQ(told(flags, "ACCELERATE_FP8_OVERRIDE_DGRAD"), "1");
  EXPECT_EQ(told(flags, "ACCELERATE_FP8_PAD_INNER_DIM"), "0");
  EXPECT_EQ(told(flags, "MEGATRON_LM_RECOMPUTE_ACTIVATIONS"), "true");
}

TEST(Settings, TimeoutsReachWorkersFromFlagVariableAndFile) {
  const auto told = [](const Given& given) {
    std::map<std::string, std::string> variables;
    for (const auto& [name, value] : worker_variables(resolved(given))) variables[name] = value;
    return std::vector{variables["ACCELERATE_COLLECTIVE_TIMEOUT"],
                       variables["ACCELERATE_RENDEZVOUS_TIMEOUT"]};
  };
  EXPECT_THAT(told({}), ElementsAre("", ""));
  Given given{.file = "distributed_type: 'NO'\ncollective_timeout: 90\nrendezvous_timeout: 7.5\n"};
  EXPECT_THAT(told(given), ElementsAre("90.0", "7.5"));
  given.variables = {{"ACCELERATE_COLLECTIVE_TIMEOUT", "91"}};
  EXPECT_THAT(told(given), ElementsAre("91.0", "7.5"));
  given.flags = {{"--collective_timeout", "92"}};
  EXPECT_THAT(told(given), ElementsAre("92.0", "7.5"));
  given.flags = {{"--collective_timeout", "0"}};
  EXPECT_NE(refusal(given), "taken");
}

TEST(Settings, LevelAndFormatOfTheLogReachWorkersWhereSomebodyGaveThem) {
  const auto told = [](const Given& given) {
    std::map<std::string, std::string> variables;
    for (const auto& [name, value] : worker_variables(resolved(given))) variables[name] = value;
    return std::vector{variables["ACCELERATE_LOG_LEVEL"], variables["ACCELERATE_LOG_FORMAT"]};
  };
  EXPECT_THAT(told({}), ElementsAre("", ""));
  Given given{.file = "distributed_type: 'NO'\nlog_level: info\nlog_format: json\n"};
  EXPECT_THAT(told(given), ElementsAre("info", "json"));
  given.variables = {{"ACCELERATE_LOG_LEVEL", "WARN"}};
  EXPECT_THAT(told(given), ElementsAre("warn", "json"));
  given.flags = {{"--log_level", "debug"}, {"--log_format", "text"}};
  EXPECT_THAT(told(given), ElementsAre("debug", "text"));
  given.flags = {{"--log_level", "loud"}};
  EXPECT_NE(refusal(given), "taken");
}

TEST(Settings, MistypedVariablesAreRefusedWithTheRightName) {
  EXPECT_NO_THROW(refuse_mistyped_variables({"PATH", "ACCELERATE_MIXED_PRECISION", "FSDP_VERSION",
                                             "ACCELERATE_LOG_LEVEL", "ACCELERATE_VECTORS"}));
  try {
    refuse_mistyped_variables({"ACCELERATE_MIXED_PRECISON"});
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.message(), "no setting has the variable ACCELERATE_MIXED_PRECISON");
    EXPECT_EQ(error.where(), "environment variable ACCELERATE_MIXED_PRECISON");
    EXPECT_EQ(error.hint(), "ACCELERATE_MIXED_PRECISION? (unset it if another program needs it)");
  }
}

TEST(Settings, VariablesThatOnlyLookLikeSettingsAreFound) {
  EXPECT_THAT(variables_without_setting({"PATH", "ACCELERATE_RUN_NAME", "ACCELERATE_USE_CPU",
                                         "FSDP_NOTE", "ACCELERATE_SUPERVISED_BY"}),
              ElementsAre("ACCELERATE_RUN_NAME", "FSDP_NOTE"));
}

TEST(Settings, ANameThatDoesNotExistIsABug) {
  EXPECT_THROW((void)resolved({})["num_proceses"], std::logic_error);
}

}  // namespace
}  // namespace accelerate::config
