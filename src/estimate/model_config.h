// The config.json that Hugging Face models come with.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace accelerate::estimate {

// Its values, each with the preset that transformers gives it. Whatever the file holds, what comes
// out is in range: everything else is a ConfigError that names the key and the file.
class ConfigValues {
 public:
  // `where` is the place for messages. Throws ConfigError for a text that is not a JSON object.
  static ConfigValues parse(const std::string& text, const std::string& where);
  // Throws ConfigError if the file cannot be read or is larger than such a file can be.
  static ConfigValues read(const std::filesystem::path& path);

  // A positive integer; null and a missing key are the preset.
  uint64_t size(const char* key, uint64_t preset) const;
  // The same of layers: no more than a machine could ever run.
  uint64_t layers(const char* key, uint64_t preset) const;
  bool flag(const char* key, bool preset) const;
  std::string text(const char* key, const std::string& preset) const;

  // The class that the weights were saved from: "BertForSequenceClassification", "" if unsaid.
  std::string architecture() const;
  // Classes of a classifier: as many as id2label has, else num_labels, else two.
  uint64_t labels() const;

  const std::string& where() const { return where_; }
  // Throws ConfigError with the name of the file.
  [[noreturn]] void refuse(const std::string& what, const std::string& hint) const;

 private:
  ConfigValues(nlohmann::json values, std::string where);

  nlohmann::json values_;
  std::string where_;
};

}  // namespace accelerate::estimate
