// Settings, configuration files and what workers are told, against what the reference does.
#include "config/config_file.h"
#include "config/fsdp2.h"
#include "config/schema.h"
#include "config/value.h"
#include "config/worker_variables.h"
#include "golden/case_log.h"
#include "golden/config_json.h"
#include "golden/reference_data.h"

namespace accelerate::test {
namespace {

using config::FileNode;
using config::Kind;
using config::Setting;
using nlohmann::json;

TEST(ConfigVectors, StrToBool) {
  const json all = load_vectors("str_to_bool.json");
  CaseLog log;
  for (const json& recorded : all) {
    log.run(recorded, [&] {
      const auto truth = config::truth_of(recorded.at("input").get<std::string>());
      const json expected = recorded.at("expected");
      log.expect_equal<json>("truth", truth ? json(*truth ? 1 : 0) : json("ValueError"), expected);
    });
  }
  log.report();
}

TEST(ConfigVectors, ConvertDictToEnvVariables) {
  const json recorded = load_vectors("convert_dict_to_env_variables.json");
  std::vector<std::string> expected = recorded.at("expected");
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(config::variable_lines(recorded.at("input").get<std::map<std::string, std::string>>()),
            expected);
}

TEST(ConfigVectors, FilesOfOlderVersionsAreUpgraded) {
  const json all = load_vectors("config_file_upgrade.json");
  CaseLog log;
  for (const json& recorded : all) {
    log.run(recorded.at("input"), [&] {
      json result;
      try {
        result = json_of(config::complete_document(interpreted(recorded.at("input"))));
      } catch (const ConfigError& error) {
        result = "refused";
      }
      const json expected = recorded.contains("error") ? json("refused") : recorded.at("expected");
      log.expect_equal("document", result, expected);
    });
  }
  log.report();
}

TEST(ConfigVectors, TheDefaultFileOfAMachineWithoutGpus) {
  const json expected = load_vectors("config_default_cpu_machine_bf16.json");
  const std::string precision = expected.at("mixed_precision");
  EXPECT_EQ(json_of(config::default_document(precision, 0)), expected);
}

TEST(ConfigVectors, FilesHaveTheKeysOfTheReference) {
  const json all = load_vectors("cluster_config_keys.json");
  std::vector<std::string> expected;
  ASSERT_FALSE(all.empty());
  for (const json& row : all) {
    const std::string key = row.at(0);
    expected.push_back(key);
    if (config::is_map_key(key, false)) continue;
    const Setting* setting = config::find_file_key("", key, false);
    ASSERT_NE(setting, nullptr) << key;
    const json preset = setting->file_preset
                            ? json_of(FileNode::plain(std::string(*setting->file_preset)))
                            : json(nullptr);
    EXPECT_EQ(preset, row.at(1)) << key;
  }
  // Ours alone: Python's library refuses a file that has one, and none is written unless it is
  // asked for.
  for (const char* own : {"collective_timeout", "log_format", "log_level", "rendezvous_timeout"}) {
    expected.push_back(own);
  }
  std::vector<std::string> keys = config::file_keys("", false);
  std::sort(keys.begin(), keys.end());
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(keys, expected);
}

TEST(ConfigVectors, ToFsdp2) {
  const json all = load_vectors("to_fsdp2.json");
  CaseLog log;
  for (const json& recorded : all) {
    log.run(recorded.at("input"), [&] {
      const FileNode document =
          config::parse_config_text(recorded.at("input").dump(), "input.yaml");
      log.expect_equal<json>("document", json_of(config::to_fsdp2(document).document),
                             recorded.at("expected"));
    });
  }
  log.report();
}

// What the schema says where the reference names a default.
json preset_of(const Setting& setting, const std::string& flag) {
  if (!setting.preset) return nullptr;
  const std::string preset(*setting.preset);
  if (setting.kind == Kind::kList) return json::parse("[" + preset + "]");
  if (setting.kind == Kind::kSwitch)
    return (preset == "true") != config::is_negative_flag(setting, flag);
  return preset;
}

// Numbers and words alike as text; Python's True and the words of a bool as true.
json as_text(const json& value) {
  if (value.is_number_float()) return value.dump();
  return value.is_number() ? json(value.dump()) : value;
}

TEST(ConfigVectors, EveryOptionOfLaunchIsAFlag) {
  const json all = load_vectors("launch_options.json");
  CaseLog log;
  for (const json& option : all) {
    const std::vector<std::string> flags = option.at("flags");
    if (!flags[0].starts_with("-") || flags[0] == "-h") continue;  // the program, help
    log.run(option, [&] {
      const Setting* setting = config::find_flag(flags[0]);
      if (setting == nullptr) return log.note("there is no such flag");
      for (const std::string& flag : flags) {
        if (config::find_flag(flag) != setting) log.note(flag + " is another flag");
      }
      const json& preset = option.at("default");
      const bool is_switch = option.at("type").is_null() && preset.is_boolean();
      if (is_switch && setting->kind != Kind::kSwitch) log.note("it is no switch");
      if (!preset.is_null()) {
        const json expected = preset.is_boolean() && setting->kind == Kind::kBool
                                  ? json(preset.get<bool>() ? "true" : "false")
                                  : as_text(preset);
        log.expect_equal<json>("default", preset_of(*setting, flags[0]), expected);
      }
      if (option.at("choices").is_array()) {
        std::vector<std::string> choices(setting->choices.begin(), setting->choices.end());
        log.expect_equal("choices", choices, option.at("choices").get<std::vector<std::string>>());
      }
    });
  }
  log.report();
}

}  // namespace
}  // namespace accelerate::test
