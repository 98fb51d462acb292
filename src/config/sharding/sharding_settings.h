// The settings of a sharded run: which flag of the launcher and which variable of a worker decides
// what. The only table of it.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "config/sharding/given_values.h"

namespace accelerate::config {

enum class ShardingFamily { kDeepspeed, kFsdp };

struct ShardingSetting {
  ShardingFamily family{};
  std::string_view name{};      // of the setting and of its flag
  std::string_view variable{};  // by which a worker is told
  // What it decides: a key of DeepSpeed's configuration, or a field of FsdpPlan; "": nothing here.
  std::string_view decides{};
};

std::span<const ShardingSetting> sharding_settings();
// nullptr if there is none.
const ShardingSetting* find_sharding_setting(std::string_view name);

// Looks up variables of a process; nothing where one is not set.
using VariableReader = std::function<std::optional<std::string>(const char* name)>;

// What the launcher told this worker. A variable that is empty says nothing. Those that the
// launcher took from deepspeed_config of its file, which ACCELERATE_CONFIG_DS_FIELDS lists, say so
// in their place.
GivenValues given_by_variables(VariableReader variable);

}  // namespace accelerate::config
