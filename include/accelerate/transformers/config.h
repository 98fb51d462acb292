// The settings of a model: its config.json.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "accelerate/export.h"

namespace accelerate::model_config {
struct Document;
}

namespace accelerate::transformers {

// A value that a setting can be given. nullptr is the null of JSON: as if it were absent, except
// for the few settings that is_null() is asked about.
using ConfigValue =
    std::variant<std::nullptr_t, bool, int64_t, double, std::string, std::vector<int64_t>>;

// Holds every key of the file, known or not, and writes them all back. Keys are names, or paths
// such as "rope_parameters.rope_theta". A null counts as absent. Names that all models have in
// common (hidden_size, num_hidden_layers, num_attention_heads, max_position_embeddings, head_dim)
// stand for those of the model's own files, n_embd for example, where it has others; files get the
// latter.
//
// A value: copies are independent; a moved-from one can only be assigned to. An invalid setting
// is a DataError that names the file, the key and what it should be.
class ACCELERATE_EXPORT ModelConfig {
 public:
  // A config.json, or the folder that holds one. Throws DataError if it is missing or not an
  // object.
  static ModelConfig from_file(const std::filesystem::path& file);
  // The text of such a file; `name` stands for it in messages.
  static ModelConfig from_json(std::string_view json, const std::string& name = "config.json");

  ModelConfig();
  ~ModelConfig();
  ModelConfig(const ModelConfig& other);
  ModelConfig(ModelConfig&& other) noexcept;
  ModelConfig& operator=(const ModelConfig& other);
  ModelConfig& operator=(ModelConfig&& other) noexcept;

  // As Python writes it: sorted, indented by two.
  std::string to_json() const;

  bool has(std::string_view key) const;
  // Whether the file says null, where leaving the key out would mean a default.
  bool is_null(std::string_view key) const;
  // Each without a default throws where the key is absent.
  bool flag(std::string_view key) const;
  bool flag(std::string_view key, bool otherwise) const;
  int64_t integer(std::string_view key) const;
  int64_t integer(std::string_view key, int64_t otherwise) const;
  // A whole number from 1 to 2^31 - 1: what a dimension or a number of layers can be.
  int64_t size(std::string_view key) const;
  int64_t size(std::string_view key, int64_t otherwise) const;
  double number(std::string_view key) const;
  double number(std::string_view key, double otherwise) const;
  // A number that is 0 or more.
  double non_negative(std::string_view key, double otherwise) const;
  // A number from 0 to 1.
  double probability(std::string_view key, double otherwise) const;
  std::string text(std::string_view key) const;
  std::string text(std::string_view key, const std::string& otherwise) const;
  // One number or a list of them, as eos_token_id can be; empty where absent.
  std::vector<int64_t> integers(std::string_view key) const;
  std::vector<std::string> texts(std::string_view key) const;

  // Sets a key, creating the objects on its path. An invalid value is then a UsageError that names
  // `source`, if given, else an error of the file.
  void set(std::string_view key, ConfigValue value, const std::string& source = {});
  void set_texts(std::string_view key, const std::vector<std::string>& values);
  // Removes a key, if it exists.
  void remove(std::string_view key);

  // "bert": of model_type, else of the first of `architectures` where the library knows it.
  std::string model_type() const;
  std::vector<std::string> architectures() const { return texts("architectures"); }
  // Of `dtype` or, as older files have it, `torch_dtype`.
  std::optional<at::ScalarType> dtype() const;
  // The names of the classes, by number; LABEL_0, LABEL_1 where the file has none.
  std::vector<std::string> labels() const;
  int64_t num_labels() const { return static_cast<int64_t>(labels().size()); }
  // What the file says, which may name other numbers than 0, 1 and so on: as in Python there are
  // as many classes as names.
  std::map<int64_t, std::string> id2label() const;
  // Sets id2label and label2id.
  void set_labels(const std::vector<std::string>& names);
  // LABEL_0 and so on, unless there are that many names already.
  void set_num_labels(int64_t count);

  // Its name in messages.
  const std::string& name() const;
  // What messages name as the place of a key: name(), or what has set it.
  const std::string& source_of(std::string_view key) const;

 private:
  // For the library itself.
  friend const model_config::Document& document_of(const ModelConfig& config);

  std::unique_ptr<model_config::Document> document_;
};

}  // namespace accelerate::transformers
