// Settings as DeepSpeed's own configuration, against what the reference makes of them.
#include "config/deepspeed_document.h"
#include "config/schema.h"
#include "golden/case_log.h"
#include "golden/config_json.h"
#include "golden/reference_data.h"

namespace accelerate::test {
namespace {

using nlohmann::json;

// The cases that say what settings become; the others are about what prepare() fills in.
bool is_about_settings(const json& recorded) { return recorded.contains("args"); }

config::Settings settings_of(const json& arguments) {
  config::SettingsInput input;
  for (const auto& [name, value] : arguments.items()) {
    if (name == "hf_ds_config") continue;
    const std::string flag = "--" + name;
    const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    input.flags.push_back({config::find_flag(flag), text, flag});
  }
  return config::resolve_settings(input);
}

TEST(DeepspeedVectors, SettingsBecomeWhatTheReferenceMakesOfThem) {
  const json all = load_vectors("deepspeed_config.json");
  CaseLog log;
  for (const json& recorded : all) {
    if (!is_about_settings(recorded)) continue;
    log.run(recorded, [&] {
      std::optional<config::FileNode> file;
      if (recorded.at("args").contains("hf_ds_config")) {
        file = config::parse_config_text(recorded.at("args").at("hf_ds_config").dump(), "ds.json");
      }
      json result;
      json init = nullptr;
      try {
        const auto made = config::deepspeed_document(settings_of(recorded.at("args")), file);
        result = json_of(made.document);
        init = made.shards_at_init;
      } catch (const ConfigError&) {
        result = "refused";
      }
      if (recorded.contains("error")) return log.expect_equal<json>("result", result, "refused");
      log.expect_equal<json>("document", result, recorded.at("deepspeed_config"));
      log.expect_equal<json>("zero3_init_flag", init, recorded.at("zero3_init_flag"));
    });
  }
  log.report();
}

TEST(DeepspeedVectors, WhatPrepareFillsIn) {
  const json all = load_vectors("deepspeed_config.json");
  std::string untested;
  for (const json& recorded : all) {
    if (!is_about_settings(recorded)) untested += "\n  " + recorded.at("desc").get<std::string>();
  }
  if (!untested.empty()) GTEST_SKIP() << "no test yet for" << untested;
}

}  // namespace
}  // namespace accelerate::test
