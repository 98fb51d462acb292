// What a ModelConfig holds.
#pragma once

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace accelerate::transformers {

struct ConfigDocument {
  nlohmann::json root = nlohmann::json::object();
  std::string name = "config.json";

  // Of keys that somebody has set: what messages name in place of the file.
  std::map<std::string, std::string, std::less<>> sources{};

  // The name that files of this model have for a key.
  std::string own_name(std::string_view key) const;
  // Gives keys that have another name the one of files.
  void use_own_names();
  // The file, or what has set the key.
  const std::string& source_of(std::string_view key) const;

  // By name or path; null where it is absent or null.
  const nlohmann::json* find(std::string_view key) const;
  // Throws DataError where it is absent.
  const nlohmann::json& get(std::string_view key, const char* should_be) const;
  // The value to be set, made if need be with the objects around it. Throws DataError if one of
  // these is no object.
  nlohmann::json& place(std::string_view key);
  // Throws DataError: the file, the key, its value and what it should be; UsageError where the key
  // was set.
  [[noreturn]] void refuse(std::string_view key, const nlohmann::json& value,
                           const std::string& should_be) const;
};

}  // namespace accelerate::transformers
