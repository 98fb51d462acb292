// Settings put into a configuration of DeepSpeed.
#include <array>
#include <utility>

#include "accelerate/errors.h"
#include "config/sharding/deepspeed_document.h"
#include "config/sharding/sharding_settings.h"

namespace accelerate::config {
namespace {

using nlohmann::json;

constexpr int kHighestStage = 3;

json accumulation_value(const GivenValue& value) {
  if (value.text == "auto") return "auto";
  return given_integer("gradient_accumulation_steps", value, 1);
}

json clipping_value(const GivenValue& value) {
  if (value.text == "auto") return "auto";
  return given_number("gradient_clipping", value, 0);
}

json stage_value(const GivenValue& value) {
  const int64_t stage = given_integer("zero_stage", value, 0);
  if (stage <= kHighestStage) return stage;
  throw ConfigError(
      {.what = "zero_stage cannot be " + std::to_string(stage) + ": it must be 0, 1, 2 or 3",
       .where = value.place});
}

json device_value(const GivenValue& value) {
  constexpr std::array<std::string_view, 3> kDevices = {"none", "cpu", "nvme"};
  return std::string(kDevices[given_choice("an offload device", value, kDevices)]);
}

json path_value(const GivenValue& value) { return value.text; }

json flag_value(const GivenValue& value) { return given_flag("zero3_save_16bit_model", value); }

// A setting that has a place in the configuration.
struct PlacedSetting {
  const char* name;
  json (*value)(const GivenValue&);
  const char* if_nobody_says;  // in place of "auto", as JSON
};

constexpr PlacedSetting kPlacedSettings[] = {
    {"gradient_accumulation_steps", accumulation_value, "\"auto\""},
    {"gradient_clipping", clipping_value, "\"auto\""},
    {"zero_stage", stage_value, "2"},
    {"offload_optimizer_device", device_value, "\"none\""},
    {"offload_optimizer_nvme_path", path_value, "\"none\""},
    {"offload_param_device", device_value, "\"none\""},
    {"offload_param_nvme_path", path_value, "\"none\""},
    {"zero3_save_16bit_model", flag_value, "false"},
};

// `setting` in a configuration that a file began.
void merge_setting(const PlacedSetting& setting, const GivenValues& given,
                   DeepspeedDocument& document) {
  const std::string key(find_sharding_setting(setting.name)->decides);
  const std::optional<GivenValue> said = given(setting.name);
  const json* present = document.find(key);
  if (present != nullptr && *present == "auto") {
    const std::string place = said ? said->place : document.place_of(key);
    return document.set(key, said ? setting.value(*said) : json::parse(setting.if_nobody_says),
                        place);
  }
  if (!said) return;
  const json value = setting.value(*said);
  if (value == "auto") return;
  if (present == nullptr) return document.set(key, value, said->place);
  if (*present == value) return;
  refuse_contradiction(key + " is " + value_text(*present) + ", but " + std::string(setting.name) +
                           " is " + value_text(value),
                       document.place_of(key), said->place,
                       "leave one of them out, or write \"auto\" in the DeepSpeed configuration");
}

void put_offload(const std::string& part, const GivenValues& given, DeepspeedDocument& document) {
  const std::string section = "zero_optimization.offload_" + part;
  const auto device = given("offload_" + part + "_device");
  const json device_text = device ? device_value(*device) : json("none");
  document.set(section + ".device", device_text, device ? device->place : document.name);
  json path;
  std::string place = document.name;
  if (device_text == "nvme") {
    const auto said = given("offload_" + part + "_nvme_path");
    path = said ? said->text : "none";
    if (said) place = said->place;
  }
  document.set(section + ".nvme_path", path, place);
}

// A configuration made of settings alone.
DeepspeedDocument from_settings(const GivenValues& given) {
  DeepspeedDocument document;
  const auto put = [&](const char* setting, const char* key, json (*value)(const GivenValue&),
                       json otherwise) {
    const auto said = given(setting);
    document.set(key, said ? value(*said) : std::move(otherwise),
                 said ? said->place : document.name);
  };
  for (const char* key : {"train_batch_size", "train_micro_batch_size_per_gpu"}) {
    document.set(key, "auto", document.name);
  }
  put("gradient_accumulation_steps", "gradient_accumulation_steps", accumulation_value, "auto");
  put("zero_stage", "zero_optimization.stage", stage_value, 2);
  put_offload("optimizer", given, document);
  put_offload("param", given, document);
  put("zero3_save_16bit_model", "zero_optimization.stage3_gather_16bit_weights_on_model_save",
      flag_value, false);
  // A norm of 0 switches clipping off, as a missing key does.
  const auto clipping = given("gradient_clipping");
  if (!clipping || clipping_value(*clipping) != 0) {
    put("gradient_clipping", "gradient_clipping", clipping_value, "auto");
  }
  return document;
}

void decide_init(const GivenValues& given, DeepspeedDocument& document) {
  const json* stage = document.find("zero_optimization.stage");
  const bool is_stage_3 = stage != nullptr && *stage == kHighestStage;
  const auto init = given("zero3_init_flag");
  const bool is_wanted = init ? given_flag("zero3_init_flag", *init) : is_stage_3;
  document.shards_at_init = is_stage_3 && is_wanted;
  if (init && is_wanted) {
    document.without_effect.push_back(
        "zero3_init_flag (" + init->place +
        (is_stage_3 ? "; models are sharded when they are prepared)" : "; only in stage 3)"));
  }
}

void finish_document(const GivenValues& given, DeepspeedDocument& document) {
  if (document.find("steps_per_print") != nullptr) {
    document.without_effect.push_back("steps_per_print");
  }
  // Printing is the program's own matter.
  document.set("steps_per_print", "inf", document.name);
  decide_init(given, document);
  if (const auto layers = given("deepspeed_moe_layer_cls_names")) {
    document.without_effect.push_back("deepspeed_moe_layer_cls_names (" + layers->place + ")");
  }
}

}  // namespace

DeepspeedDocument deepspeed_document(const GivenValues& given, DeepspeedDocument file) {
  if (file.find("zero_optimization") == nullptr) {
    throw ConfigError({.what = "the DeepSpeed configuration has no zero_optimization",
                       .where = file.name,
                       .hint = "\"zero_optimization\": {\"stage\": 2}"});
  }
  for (const PlacedSetting& setting : kPlacedSettings) merge_setting(setting, given, file);
  if (file.find("gradient_accumulation_steps") == nullptr) {
    file.set("gradient_accumulation_steps", 1, file.name);
    file.assumes_accumulation = true;
  }
  finish_document(given, file);
  return file;
}

DeepspeedDocument deepspeed_document(const GivenValues& given) {
  const auto source = given("deepspeed_config_file");
  if (source && source->text != "none") {
    return deepspeed_document(given, read_deepspeed(source->text));
  }
  DeepspeedDocument document = from_settings(given);
  finish_document(given, document);
  return document;
}

}  // namespace accelerate::config
