// What somebody gave a setting of a sharded run: a flag or a file in the launcher, a variable in a
// worker.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace accelerate::config {

struct GivenValue {
  std::string text{};
  std::string place{};  // "--zero_stage", "c.yaml:7", "environment variable FSDP_VERSION"
};

// By the name of the setting; nothing where nobody gave a value.
using GivenValues = std::function<std::optional<GivenValue>(std::string_view setting)>;

// In any case.
bool given_matches(const GivenValue& value, std::string_view word);

// Each throws ConfigError that names the place where `value` is not what `setting` can be.
bool given_flag(std::string_view setting, const GivenValue& value);
int64_t given_integer(std::string_view setting, const GivenValue& value, int64_t least);
double given_number(std::string_view setting, const GivenValue& value, double least);
// The position among `choices`, in any case.
size_t given_choice(std::string_view setting, const GivenValue& value,
                    std::span<const std::string_view> choices);

// Throws ConfigError about two places that say different things.
[[noreturn]] void refuse_contradiction(const std::string& what, const std::string& place,
                                       const std::string& other_place, const std::string& hint);

}  // namespace accelerate::config
