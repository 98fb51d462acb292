// The config.json of a model: its keys, checked where they are read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace accelerate::model_config {

// Holds every key of the file, known or not. Keys are names, or paths such as
// "rope_parameters.rope_theta". A null counts as absent. Names that all models have in common
// (hidden_size) stand for those of the model's own files (n_embd).
//
// An invalid value is a DataError that names the file, the key and what it should be, or a
// UsageError where somebody has set the key.
struct Document {
  nlohmann::json root = nlohmann::json::object();
  // The file, in messages.
  std::string name = "config.json";
  // Of keys that somebody has set: what messages name in place of the file.
  std::map<std::string, std::string, std::less<>> sources{};

  // The text of such a file. Throws DataError if it is not an object, or hostile; see parse.h.
  static Document parse(std::string_view text, const std::string& name);
  // A config.json, or the folder that holds one. Throws DataError if it is missing or larger than
  // such a file can be too.
  static Document read(const std::filesystem::path& file);

  // The name that files of this model have for a key.
  std::string own_name(std::string_view key) const;
  // Gives keys that have another name the one of files.
  void use_own_names();
  // The file, or what has set the key.
  const std::string& source_of(std::string_view key) const;
  // For messages about settings that do not go together: which of them are not from the file, as
  // " ('n_head' is that of PretrainedOptions::config)"; empty where all are.
  std::string changed_settings(std::initializer_list<const char*> keys) const;

  // By name or path; null where it is absent or null.
  const nlohmann::json* find(std::string_view key) const;
  bool has(std::string_view key) const { return find(key) != nullptr; }
  // Throws DataError where it is absent.
  const nlohmann::json& get(std::string_view key, const char* should_be) const;
  // The value to be set, made if need be with the objects around it. Throws DataError if one of
  // these is no object.
  nlohmann::json& place(std::string_view key);
  // Throws the error of an invalid value.
  [[noreturn]] void refuse(std::string_view key, const nlohmann::json& value,
                           const std::string& should_be) const;

  // Each gives `otherwise` where the key is absent, and throws DataError if there is none.
  bool flag(std::string_view key, std::optional<bool> otherwise = {}) const;
  int64_t integer(std::string_view key, std::optional<int64_t> otherwise = {}) const;
  // A whole number from 1 to 2^31 - 1: what a dimension or a number of layers can be.
  int64_t size(std::string_view key, std::optional<int64_t> otherwise = {}) const;
  double number(std::string_view key, std::optional<double> otherwise = {}) const;
  // A number that is 0 or more.
  double non_negative(std::string_view key, std::optional<double> otherwise = {}) const;
  // A number from 0 to 1.
  double probability(std::string_view key, std::optional<double> otherwise = {}) const;
  std::string text(std::string_view key, std::optional<std::string> otherwise = {}) const;
  // One number or a list of them; empty where absent.
  std::vector<int64_t> integers(std::string_view key) const;
  std::vector<std::string> texts(std::string_view key) const;

  // The classes of a classifier: num_labels, or as many as id2label names, or two.
  int64_t label_count() const;
  // `count`, unless it is none that num_labels can be.
  int64_t checked_label_count(int64_t count) const;
};

}  // namespace accelerate::model_config
