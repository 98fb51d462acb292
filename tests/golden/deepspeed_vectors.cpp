// Settings as DeepSpeed's own configuration, and what a run fills in, against what the reference
// makes of them.
#include <regex>

#include "config/given_settings.h"
#include "config/schema.h"
#include "config/sharding/deepspeed_plan.h"
#include "config/sharding/deepspeed_run.h"
#include "golden/case_log.h"
#include "golden/config_json.h"
#include "golden/reference_data.h"

namespace accelerate::test {
namespace {

using nlohmann::json;

// The cases that say what settings become. The others tell in words what was done; what their tests
// need is read from these words.
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

config::DeepspeedDocument document_of(const json& arguments) {
  const config::Settings settings = settings_of(arguments);
  const config::GivenValues given = config::given_settings(settings);
  if (!arguments.contains("hf_ds_config")) return config::deepspeed_document(given);
  return config::deepspeed_document(
      given, config::parse_deepspeed(arguments.at("hf_ds_config").dump(), "ds.json"));
}

TEST(DeepspeedVectors, SettingsBecomeWhatTheReferenceMakesOfThem) {
  const json all = load_vectors("deepspeed_config.json");
  CaseLog log;
  for (const json& recorded : all) {
    if (!is_about_settings(recorded)) continue;
    log.run(recorded, [&] {
      json result;
      json init = nullptr;
      try {
        const config::DeepspeedDocument made = document_of(recorded.at("args"));
        result = made.values;
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

// What `pattern` captures in `words`; empty where it does not match.
std::vector<std::string> captured(const std::string& words, const char* pattern) {
  std::smatch match;
  if (!std::regex_search(words, match, std::regex(pattern))) return {};
  return {match.begin() + 1, match.end()};
}

std::optional<std::string> captured_one(const std::string& words, const char* pattern) {
  const std::vector<std::string> found = captured(words, pattern);
  return found.empty() ? std::nullopt : std::optional(found.front());
}

// The run that the description of a case tells of.
config::DeepspeedRun run_of(const std::string& words) {
  config::DeepspeedRun run;
  const auto whole = [&](const char* pattern) -> std::optional<int64_t> {
    const auto text = captured_one(words, pattern);
    return text ? std::optional<int64_t>(std::stoll(*text)) : std::nullopt;
  };
  run.ranks = static_cast<int>(whole("(\\d+) process").value_or(1));
  if (const auto batch = whole("micro_batch=(\\d+)")) run.loader_batches = {*batch};
  run.accumulation_steps = whole("accum=(\\d+)");
  if (const auto hidden = whole("hidden_size=(\\d+)")) run.hidden_sizes = {*hidden};
  if (const auto lr = captured_one(words, "DummyOptim\\(.*?lr=([-.e\\d]+)")) {
    run.lr = std::stod(*lr);
    const auto decay = captured_one(words, "DummyOptim\\([^)]*weight_decay=([-.e\\d]+)");
    run.weight_decay = decay ? std::stod(*decay) : 0.0;
  }
  run.warmup_steps = whole("DummyScheduler\\([^)]*warmup=(\\d+)");
  run.training_steps = whole("DummyScheduler\\([^)]*total=(\\d+)");
  return run;
}

// The configuration of the set in which everything is "auto".
json all_auto_config(const json& all) {
  for (const json& recorded : all) {
    if (!is_about_settings(recorded) || !recorded.at("args").contains("hf_ds_config")) continue;
    const json& config = recorded.at("args").at("hf_ds_config");
    if (config.value("train_batch_size", json()) == "auto") return config;
  }
  return nullptr;
}

TEST(DeepspeedVectors, PrepareFillsInWhatIsAuto) {
  const json all = load_vectors("deepspeed_config.json");
  const json config = all_auto_config(all);
  ASSERT_TRUE(config.is_object());
  CaseLog log;
  for (const json& recorded : all) {
    if (is_about_settings(recorded) || !recorded.contains("deepspeed_config")) continue;
    log.run(recorded, [&] {
      const std::string words = recorded.at("desc");
      const config::DeepspeedRun run = run_of(words);
      config::DeepspeedDocument document = document_of({{"hf_ds_config", config}});
      const std::string precision = captured_one(words, "mixed_precision (\\w+)").value_or("no");
      config::set_precision(document, precision, "mixed_precision");
      config::fill_auto(document, run);
      log.expect_equal<json>("document", document.values, recorded.at("deepspeed_config"));
      // All of it is understood.
      const config::DeepspeedPlan plan = config::deepspeed_plan(document, run.ranks);
      log.expect_equal<json>("total batch", plan.batch.total,
                             recorded.at("deepspeed_config").at("train_batch_size"));
    });
  }
  log.report();
}

// What the reference writes into a message, as a value of JSON.
json value_of(const std::string& text) {
  const json value = json::parse(text, nullptr, false);
  return value.is_discarded() ? json(text) : value;
}

TEST(DeepspeedVectors, MismatchesAreToldInTheWordsOfTheReference) {
  const json all = load_vectors("deepspeed_config.json");
  CaseLog log;
  for (const json& recorded : all) {
    if (!recorded.contains("message_contains")) continue;
    log.run(recorded, [&] {
      const std::string expected = recorded.at("message_contains");
      const auto parts = captured(expected, "^- ds (\\S+)=(\\S+) vs arg (\\S+)=(\\S+)$");
      if (parts.size() != 4) return log.note("the message tells of something else");
      config::DeepspeedDocument document = config::parse_deepspeed("{}", "ds.json");
      document.set(parts[0], value_of(parts[1]), "ds.json");
      try {
        config::fill_auto(
            document, config::AutoValues{{parts[2], {value_of(parts[3]), "the program", true}}});
        log.note("not refused");
      } catch (const ConfigError& error) {
        const bool is_told = error.message().find(expected) != std::string::npos;
        if (!is_told) log.note("the message is " + error.message());
        log.expect_equal<std::string>("places", error.where(), "ds.json and the program");
      }
    });
  }
  log.report();
}

TEST(DeepspeedVectors, PrecisionThatTheConfigurationContradictsIsRefused) {
  const json all = load_vectors("deepspeed_config.json");
  CaseLog log;
  for (const json& recorded : all) {
    const auto parts = captured(recorded.at("desc"),
                                "set_mixed_precision\\('(\\w+)'\\) when (\\w+)\\.enabled (\\w+)");
    if (parts.empty()) continue;
    log.run(recorded, [&] {
      config::DeepspeedDocument document = config::parse_deepspeed("{}", "ds.json");
      document.set(parts[1] + ".enabled", value_of(parts[2]), "ds.json");
      json result = "taken";
      try {
        config::set_precision(document, parts[0], "--mixed_precision");
      } catch (const ConfigError&) {
        result = "refused";
      }
      log.expect_equal<json>("result", result, recorded.contains("error") ? "refused" : "taken");
    });
  }
  log.report();
}

// Every case of the file belongs to one of the tests above.
TEST(DeepspeedVectors, NoCaseIsPassedOver) {
  for (const json& recorded : load_vectors("deepspeed_config.json")) {
    const bool has_test =
        is_about_settings(recorded) || recorded.contains("deepspeed_config") ||
        recorded.contains("message_contains") ||
        !captured(recorded.at("desc"), "(set_mixed_precision)\\('\\w+'\\) when").empty();
    EXPECT_TRUE(has_test) << recorded.at("desc");
  }
}

}  // namespace
}  // namespace accelerate::test
