// A configuration of DeepSpeed: its tree of keys, and who gave which.
#pragma once

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/sharding/given_values.h"

namespace accelerate::config {

// Keys are paths such as "zero_optimization.stage". A null counts as absent.
struct DeepspeedDocument {
  nlohmann::json values = nlohmann::json::object();
  std::string name = "the DeepSpeed settings";  // in messages
  // Who gave a key that does not come from `name`.
  std::map<std::string, std::string, std::less<>> places{};
  bool shards_at_init = false;                // parameters are sharded while the model is built
  bool assumes_accumulation = false;          // nobody gave gradient_accumulation_steps: 1
  std::vector<std::string> without_effect{};  // settings beside the tree that change nothing

  // nullptr where it is absent, or where something on the way to it is no object.
  const nlohmann::json* find(std::string_view key) const;
  bool is_auto(std::string_view key) const;
  // "ds.json: zero_optimization.stage", or who else gave it.
  std::string place_of(std::string_view key) const;
  // Makes the objects on the way. Throws ConfigError where something else is there.
  void set(std::string_view key, nlohmann::json value, const std::string& place);
};

// A file that is there, else the text of a JSON object, else that in base64 (either alphabet).
// Throws ConfigError for what is none of these, is not strict JSON or has a key twice.
DeepspeedDocument read_deepspeed(const std::string& source);
// The text of one; `name` is for messages.
DeepspeedDocument parse_deepspeed(std::string_view text, const std::string& name);

// What the settings ask for: their deepspeed_config_file with its "auto" filled in where a setting
// knows the value, or without one a configuration made of the settings. What only the run knows
// stays "auto". A setting that the file leaves out counts. Throws ConfigError where both say
// something and differ, and for a file without zero_optimization.
DeepspeedDocument deepspeed_document(const GivenValues& given);
// The same of a file that was read already.
DeepspeedDocument deepspeed_document(const GivenValues& given, DeepspeedDocument file);

// "bf16", or "bfloat16" where the configuration uses the older name. Throws ConfigError if it has
// both.
const char* bf16_section(const DeepspeedDocument& document);

// A value in a message: 1.0, nvme, true.
std::string value_text(const nlohmann::json& value);

}  // namespace accelerate::config
