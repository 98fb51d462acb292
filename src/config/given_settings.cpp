#include "config/given_settings.h"

#include <string>

#include "config/value.h"

namespace accelerate::config {

GivenValues given_settings(const Settings& settings) {
  return [&settings](std::string_view name) -> std::optional<GivenValue> {
    const SettingValue& value = settings[name];
    if (!value.is_given() || value.text->empty()) return std::nullopt;
    return GivenValue{*value.text, place_of(value.source)};
  };
}

}  // namespace accelerate::config
